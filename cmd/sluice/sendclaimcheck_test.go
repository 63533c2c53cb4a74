package main_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/blobstore"
	"github.com/sluice-go/sluice/internal/proof/azurite"
)

// TestSendWithClaimCheck sends large records by way of blobs, and a pipeline writes rows of them.
func TestSendWithClaimCheck(t *testing.T) {
	t.Parallel()
	server := azurite.New(t, nil)
	storage := "AZURE_STORAGE_CONNECTION_STRING=" + server.ConnectionString()
	if _, err := blobstore.Open(t.Context(), "bodies", &blobstore.Config{ConnectionString: server.ConnectionString()}); err != nil { // creates it
		t.Fatal(err)
	}
	const n = 60
	lines := numbered(n)
	for i := 0; i < n; i += 20 { // more than the hub takes
		lines[i] = fmt.Sprintf(`{"n":%d,"key":"k","pad":%q}`, i+1, strings.Repeat("x", 2<<20))
	}
	_, connection := serve(t, 2)
	dir := t.TempDir()
	input, report, config := writeLines(t, lines), filepath.Join(dir, "report"), filepath.Join(dir, "large.yaml")
	out := must(t, dir, []string{storage}, "send", "--to", connection, "--hub", "flights", "--key-field", "key", "--claim-check", "bodies", "--report", report, input)
	if !strings.HasPrefix(out, "60 records acknowledged") {
		t.Errorf("it says %s", out)
	}
	references := 0
	for _, body := range lookAt(t, connection).bodies() {
		if len(body) > 1000 {
			t.Errorf("an event has %d bytes", len(body))
		}
		if strings.HasPrefix(body, `{"claim_check":{`) {
			references++
		}
	}
	if references != 3 {
		t.Errorf("%d references", references)
	}
	yaml := `source:
  eventhub: {connection: "${EVENTHUB_CONNECTION_STRING}", hub: flights}
  claim_check: {container: bodies, connection: "${AZURE_STORAGE_CONNECTION_STRING}"}
partitions: all
database: sqlite:large.db
target:
  insert:
    table: large
    create: true
    columns: {n: {from: body.n, type: integer}, pad: {from: body.pad, type: text, required: false}}
`
	if err := os.WriteFile(config, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	env := []string{storage, "EVENTHUB_CONNECTION_STRING=" + connection}
	must(t, dir, env, "check", "--connect", config)
	must(t, dir, env, "run", config, "--until-caught-up")
	db := openDatabase(t, "sqlite:"+filepath.Join(dir, "large.db"))
	if rows, numbers, pads := count(t, db, "SELECT count(*) FROM large"), count(t, db, "SELECT count(DISTINCT n) FROM large"), count(t, db, "SELECT sum(length(pad)) FROM large"); rows != n || numbers != n || pads != 3*2<<20 {
		t.Errorf("%d rows of %d numbers, with %d bytes", rows, numbers, pads)
	}
	if list, said := peek(t, env, config, "--where", "body.n: [1, 21, 41]"); len(list) != 3 || len(list[0].Body) < 2<<20 {
		t.Errorf("peek finds %d: %s", len(list), said)
	}
	if out := must(t, "", env, "peek", "--hub", "flights", "--limit", "60"); strings.Count(out, "It is a reference to a blob (claim check): source.claim_check fetches the body.") != 3 {
		t.Errorf("peek without a file: %s", out)
	}
	code, out, errs := invoke(t, dir, []string{strings.Replace(storage, "AccountKey=", "AccountKey=a2V5", 1), "EVENTHUB_CONNECTION_STRING=" + connection}, "check", "--connect", config)
	if code != 1 || !strings.Contains(out, "source.claim_check") && !strings.Contains(out, "large.yaml:3:3") || strings.Contains(out+errs, "a2V5") {
		t.Errorf("check with a wrong key: exit code %d: %s%s", code, out, errs)
	}
	for args, want := range map[string]string{
		"--claim-check none":                                     "--claim-check: container http://",
		"--claim-check bodies --claim-check-over 0":              "--claim-check-over 0: must be positive",
		"--claim-check=":                                         "--claim-check: must not be empty",
		"--claim-check-over 5":                                   "--claim-check-over needs --claim-check",
		"--claim-check https://a.blob.core.windows.net/b?sig=c2": "put it into an environment variable and write env:NAME",
		"--claim-check env:NOWHERE":                              "the environment variable NOWHERE is not set",
	} {
		code, out, errs := invoke(t, "", []string{storage}, append(append([]string{"send", "--to", connection, "--hub", "flights"}, strings.Fields(args)...), input)...)
		if code == 0 || out != "" || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, want) || strings.Contains(errs, "sig=c2") {
			t.Errorf("%s: exit code %d: %s%s", args, code, out, errs)
		}
	}
}
