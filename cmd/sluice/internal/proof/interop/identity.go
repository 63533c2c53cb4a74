package interop

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/internal/proof/azurite"
)

// principal is the identity of the official clients' tests.
const principal = "tests"

// storageResource is what tokens for Azure Storage are requested for.
const storageResource = "https://storage.azure.com"

// StartIssuer starts an issuer of tokens, and returns the environment variables by which a
// managed identity finds it. It also serves tokens for Azure Storage, which Azurite accepts. It
// ends with the test.
func StartIssuer(t *testing.T) (*emulator.Issuer, []string) {
	t.Helper()
	issuer, err := emulator.StartIssuer([]emulator.Principal{{ID: principal, Secret: principal}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := issuer.Close(); err != nil {
			t.Errorf("close the issuer: %v", err)
		}
	})
	target, err := url.Parse(issuer.URL())
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Query().Get("resource"), storageResource) {
			proxy.ServeHTTP(w, r)
			return
		}
		expiry := time.Now().Add(time.Hour)
		_ = json.NewEncoder(w).Encode(map[string]string{
			"access_token": azurite.Token(expiry, ""), "token_type": "Bearer", "resource": storageResource, "expires_on": fmt.Sprint(expiry.Unix()),
		})
	}))
	t.Cleanup(srv.Close)
	return issuer, []string{"AZURE_TOKEN_CREDENTIALS=ManagedIdentityCredential", "IDENTITY_ENDPOINT=" + srv.URL + "/msi/token", "IDENTITY_HEADER=" + principal, "AZURE_CLIENT_ID=" + principal}
}
