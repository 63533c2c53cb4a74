package main_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/internal/proof/pgtest"
)

// TestEntraPostgres: every command that opens a database takes credential=default. The server
// checks the token as the password of the role, so that no command gets in without one.
func TestEntraPostgres(t *testing.T) {
	need.Postgres(t)
	t.Parallel()
	const token = "token-4711-canary"
	var asked atomic.Int64
	issuer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-IDENTITY-HEADER") != "header" || r.URL.Query().Get("resource") != "https://ossrdbms-aad.database.windows.net" {
			http.Error(w, "no token for this", http.StatusUnauthorized)
			return
		}
		asked.Add(1)
		_ = json.NewEncoder(w).Encode(map[string]string{"access_token": token, "expires_on": "4102444800", "resource": r.URL.Query().Get("resource"), "token_type": "Bearer"})
	}))
	t.Cleanup(issuer.Close)
	address := pgtest.Database(t)
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	role := "entra_" + strings.TrimPrefix(u.Path, "/")
	db := openDatabase(t, address)
	if _, err := db.Exec("CREATE ROLE " + role + " LOGIN PASSWORD '" + token + "'; GRANT ALL ON SCHEMA public TO " + role + "; CREATE TABLE orders AS SELECT generate_series(1, 2500) AS id; GRANT ALL ON orders TO " + role); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = db.Exec("DROP OWNED BY " + role + "; DROP ROLE " + role) })
	u.User = url.User(role)
	u.RawQuery = "sslmode=disable&credential=default"
	_, connection := serve(t, 1)
	identity := func(secret string) []string {
		return environment(connection, u.String(), "AZURE_TOKEN_CREDENTIALS=ManagedIdentityCredential", "IDENTITY_ENDPOINT="+issuer.URL, "IDENTITY_HEADER="+secret)
	}
	env := identity("header")
	config := example(t)
	must(t, "", env, "send", "--hub", "flights", writeLines(t, append(spoiled(1), sane)))
	file, instances := autoscaler(t)
	file = changedFile(t, file, "database: sqlite:"+filepath.Join(filepath.Dir(file), "orders.db"), "database: ${DATABASE_URL}")
	for _, args := range [][]string{
		{"check", "--connect", config},
		{"run", config, "--until-caught-up", "--within", "2m"},
		{"audit", "hub", "--config", config},
		{"checkpoints", "list", "--config", config},
		{"deadletters", "list", "--config", config},
		{"deadletters", "discard", "--config", config, "--all"},
	} {
		before := asked.Load()
		out := must(t, "", env, args...)
		if strings.Contains(out, token) {
			t.Errorf("%q shows the token: %s", args, out)
		}
		if asked.Load() == before {
			t.Errorf("%q has asked for no token", args)
		}
		code, out, errs := invoke(t, "", identity("other"), args...)
		if code == 0 || !strings.Contains(out+errs, "no token from Entra ID") || strings.Count(errs, "\n") != 1 || strings.Contains(out+errs, token) {
			t.Errorf("%q without a token: exit code %d: %s%s", args, code, out, errs)
		}
	}
	scaling := start(t, "", env, "autoscale", "run", file)
	await(t, "three instances, by the rows of the database", reads(instances, "3\n"))
	scaling.stop()
}
