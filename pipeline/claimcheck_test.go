package pipeline

import (
	"strings"
	"testing"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/blobstore"
	"github.com/sluice-go/sluice/sluicetest"
)

// withClaimCheck is the sound file with source.claim_check.
func withClaimCheck(t *testing.T, keys string) string {
	t.Helper()
	return edit(t, "  start: earliest\n", "  start: earliest\n  claim_check:\n"+keys)
}

func TestClaimCheckMistakes(t *testing.T) {
	for _, c := range []struct{ keys, want string }{
		{"    container: bodies\n", `p.yaml:8:3: source.claim_check: container "bodies": the name of a container needs a connection string beside it, or write its URL: https://ACCOUNT.blob.core.windows.net/CONTAINER`},
		{"    connection: ${DATABASE_URL}\n", "p.yaml:8:3: source.claim_check.container: is missing"},
		{"    container: bodies\n    max_size: 1TB\n", `p.yaml:10:5: source.claim_check.max_size: "1TB": write a number of bytes up to 268435456, such as 4096, 256KiB or 1MB`},
		{"    container: bodies\n    max_size: 0\n", `p.yaml:10:5: source.claim_check.max_size: "0": write a number of bytes from 1 to 268435456`},
		{"    container: https://a.blob.core.windows.net/b?sv=1&sig=c2VjcmV0\n", "p.yaml:9:5: source.claim_check.container: holds a secret: put it into an environment variable and write ${BLOB_CONTAINER}, or ${STORAGE_CONNECTION_STRING}"},
		{"    container: http://a.example/b\n    credential: default\n", "p.yaml:8:3: source.claim_check: container http://a.example/b: tokens of Entra ID are sent over https only"},
		{"    contaner: bodies\n", "p.yaml:9:5: source.claim_check.contaner: unknown key, did you mean container?"},
	} {
		_, err := Parse("p.yaml", []byte(withClaimCheck(t, c.keys)), environment())
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("got  %v\nwant %s", err, c.want)
		}
	}
}

func TestClaimCheckOfTargetMistakes(t *testing.T) {
	for keys, want := range map[string]string{
		"{container: bodies}": "p.yaml:9:5: target.servicebus.claim_check: container \"bodies\": the name of a container needs a connection string",
		"{container: bodies, connection: \"${STORAGE}\", over: 0}":     `p.yaml:9:64: target.servicebus.claim_check.over: "0": write a number of bytes from 1 to 268435456`,
		"{container: bodies, connection: \"${STORAGE}\", max_size: 5}": "p.yaml:9:64: target.servicebus.claim_check.max_size: unknown key",
	} {
		file := strings.Replace(busFile, "    key: body.who\n", "    claim_check: "+keys+"\n", 1)
		if _, err := Parse("p.yaml", []byte(file), environment("SERVICEBUS_CONNECTION_STRING="+busConnection, "STORAGE=UseDevelopmentStorage=true")); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}

// An event with a reference is a dead letter where no container is configured: its body is not the
// event's.
func TestReferenceWithoutClaimCheck(t *testing.T) {
	url, db := sqliteFile(t)
	p, parts := formatted(t, sound, "DATABASE_URL="+url)
	hub := sluicetest.NewHub(p.Group, 1)
	hub.Append("0", &sluice.Event{Body: []byte(`{"delay":1}`)},
		&sluice.Event{Body: []byte(`{"claim_check":{}}`), Properties: map[string]any{blobstore.ReferenceProperty: "1"}},
		&sluice.Event{Body: []byte(`{"delay":2}`)})
	rows := func() string { return query(t, db, "SELECT delay FROM flights ORDER BY 1") }
	runUntil(t, parts, hub, "the last event is a row", func() bool { return strings.HasSuffix(rows(), "2") })
	if found := letters(t, p, parts); rows() != "1\n2" || len(found) != 1 || !strings.Contains(found[0].Error, "add source.claim_check with its container") {
		t.Errorf("rows %q, dead letters %+v", rows(), found)
	}
}

// A filter on the body does not leave out an event whose body it cannot fetch: the delivery reports
// that.
func TestFilterOfReference(t *testing.T) {
	file := strings.Replace(sound, "target:\n", "only: {body.kind: wanted}\ntarget:\n", 1)
	p, err := Parse("p.yaml", []byte(file), environment())
	if err != nil {
		t.Fatal(err)
	}
	e := &sluice.Event{Body: []byte(`{"claim_check":{"blob":"a"}}`), Properties: map[string]any{blobstore.ReferenceProperty: "1"}}
	if handles := p.Filter(); !handles(e) || handles(&sluice.Event{Body: []byte(`{"kind":"other"}`)}) {
		t.Error("the filter leaves out a reference, or does not leave out another event")
	}
}
