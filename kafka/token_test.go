package kafka

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestTokensOfAServer: a token is asked for with the client's credentials, and again shortly before
// it expires.
func TestTokensOfAServer(t *testing.T) {
	issued, status := 0, http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, secret, _ := r.BasicAuth()
		if id != "me%2Fhere" || secret != "hunter2" || r.FormValue("grant_type") != "client_credentials" || r.FormValue("scope") != "kafka" {
			t.Errorf("%s %s %v", id, secret, r.Form)
		}
		issued++
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(map[string]any{"access_token": fmt.Sprint("token-", issued), "expires_in": 3600, "error": "invalid_client"})
	}))
	defer server.Close()
	c := &ClientCredentials{URL: server.URL, ID: "me/here", Secret: "hunter2", Scope: "kafka"}
	for range 2 {
		if token, err := c.Token(t.Context()); err != nil || token != "token-1" {
			t.Errorf("%s, %v", token, err)
		}
	}
	if left := time.Until(c.expires); left < 47*time.Minute || left > 48*time.Minute {
		t.Errorf("the token is used for %v", left)
	}
	c.expires = time.Now()
	if token, err := c.Token(t.Context()); err != nil || token != "token-2" {
		t.Errorf("%s, %v", token, err)
	}
	c.expires, status = time.Now(), http.StatusUnauthorized
	if _, err := c.Token(t.Context()); err == nil || !strings.Contains(err.Error(), "401 Unauthorized invalid_client") || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("got %v", err)
	}
	if got := fmt.Sprintf("%v %+v %s", c, c, c); strings.Contains(got, "hunter2") {
		t.Errorf("it prints its secret: %s", got)
	}
}

func TestTokensOfAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	token := TokenFile(path)
	for _, text := range []string{"one\n", "two"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := token(t.Context()); err != nil || got != strings.TrimSpace(text) {
			t.Errorf("got %q, %v", got, err)
		}
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := token(t.Context()); err == nil || !strings.HasSuffix(err.Error(), "token is empty") {
		t.Errorf("got %q, %v", got, err)
	}
}
