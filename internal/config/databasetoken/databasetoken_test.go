package databasetoken

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

func TestPostgres(t *testing.T) {
	const canary = "k4n4ry"
	for _, c := range []struct{ url, clean, wrong string }{
		{"postgres://u:" + canary + "@h/db?x=%2f", "postgres://u:" + canary + "@h/db?x=%2f", ""},
		{"host=h user=u", "host=h user=u", ""},
		{"postgres://u@h.postgres.database.azure.com/db?sslmode=verify-full&credential=default", "postgres://u@h.postgres.database.azure.com/db?sslmode=verify-full", ""},
		{"postgres://u%40contoso.com@localhost:6432/db?credential=default", "postgres://u%40contoso.com@localhost:6432/db", ""},
		{"postgres://u@h/db?credential=" + canary, "", "write credential=default"},
		{"postgres://u:" + canary + "@h/db?credential=default&sslmode=require", "", "write one of them"},
		{"postgres://h/db?credential=default&sslmode=require", "", "needs a user"},
		{"postgres://u@h/db?credential=default", "", "add sslmode=verify-full"},
		{"postgres://u@h/db?credential=default&sslmode=prefer", "", "add sslmode=verify-full"},
	} {
		clean, password, err := Postgres(c.url)
		if clean != c.clean || (password != nil) != (clean != c.url && err == nil) || (err == nil) != (c.wrong == "") {
			t.Errorf("%s: %s, %t, %v", c.url, clean, password != nil, err)
		}
		if err != nil && (!strings.Contains(err.Error(), c.wrong) || strings.Contains(err.Error(), canary)) {
			t.Errorf("%s: %v, want %s", c.url, err, c.wrong)
		}
	}
}

func TestSQLServer(t *testing.T) {
	for _, c := range []struct{ url, clean, wrong string }{
		{"sqlserver://u:p%2F@h?database=d&x=%2f", "sqlserver://u:p%2F@h?database=d&x=%2f", ""},
		{"sqlserver://h.database.windows.net:1433?credential=default&database=d&encrypt=True", "sqlserver://h.database.windows.net:1433?database=d&encrypt=True", ""},
		{"sqlserver://h?database=d&credential=default&encrypt=strict", "sqlserver://h?database=d&encrypt=strict", ""},
		{"sqlserver://h?database=d&credential=other&encrypt=true", "", "write credential=default"},
		{"sqlserver://u:k4n4ry@h?database=d&credential=default&encrypt=true", "", "write one of them"},
		{"sqlserver://h?database=d&credential=default", "", "add encrypt=true"},
		{"sqlserver://h?database=d&credential=default&encrypt=disable", "", "add encrypt=true"},
	} {
		clean, token, err := SQLServer(c.url)
		if clean != c.clean || (token != nil) != (clean != c.url && err == nil) || (err == nil) != (c.wrong == "") {
			t.Errorf("%s: %s, %t, %v", c.url, clean, token != nil, err)
		}
		if err != nil && (!strings.Contains(err.Error(), c.wrong) || strings.Contains(err.Error(), "k4n4ry")) {
			t.Errorf("%s: %v, want %s", c.url, err, c.wrong)
		}
	}
}

type credential struct {
	asked []string
	err   error
}

func (c *credential) GetToken(_ context.Context, o policy.TokenRequestOptions) (azcore.AccessToken, error) {
	c.asked = append(c.asked, o.Scopes...)
	return azcore.AccessToken{Token: "token-" + string(rune('0'+len(c.asked)))}, c.err
}

// TestTokens: each connection asks for a token, with the scope of its cloud.
func TestTokens(t *testing.T) {
	c := &credential{}
	made := 0
	password := tokens(scope("ossrdbms-aad.database.", "h.postgres.database.chinacloudapi.cn"), func() (azcore.TokenCredential, error) { made++; return c, nil })
	for _, want := range []string{"token-1", "token-2"} {
		if got, err := password(t.Context()); got != want || err != nil {
			t.Errorf("%s, %v; want %s", got, err, want)
		}
	}
	if made != 1 || c.asked[0] != "https://ossrdbms-aad.database.chinacloudapi.cn/.default" || scope("database.", "h.database.windows.net") != "https://database.windows.net/.default" {
		t.Errorf("%d credentials, scopes %q", made, c.asked)
	}
	refused := errors.New("DefaultAzureCredential: failed.\nAttempted credentials:\n\tGET http://127.0.0.1\n---------\nRESPONSE 401\n")
	denied := tokens("", func() (azcore.TokenCredential, error) { return &credential{err: refused}, nil })
	const line = "no token from Entra ID: DefaultAzureCredential: failed. Attempted credentials: GET http://127.0.0.1 RESPONSE 401"
	if _, err := denied(t.Context()); err == nil || err.Error() != line || !errors.Is(err, refused) {
		t.Errorf("got %v", err)
	}
	failing := tokens("", func() (azcore.TokenCredential, error) { return nil, errors.New("none") })
	if _, err := failing(t.Context()); err == nil || !strings.Contains(err.Error(), "default credential: none") {
		t.Errorf("got %v", err)
	}
}
