package cosmos

import (
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"

	"github.com/sluice-go/sluice"
)

// tokens is a credential that can fail.
type tokens struct{ fail atomic.Bool }

type tokenError struct{}

func (tokenError) Error() string { return "ManagedIdentityCredential: no identity here\nwith details" }
func (tokenError) NonRetriable() {}

func (c *tokens) GetToken(_ context.Context, o policy.TokenRequestOptions) (azcore.AccessToken, error) {
	if c.fail.Load() || len(o.Scopes) != 1 || !strings.HasSuffix(o.Scopes[0], "/.default") {
		return azcore.AccessToken{}, tokenError{}
	}
	return azcore.AccessToken{Token: "the-token", ExpiresOn: time.Now().Add(time.Hour)}, nil
}

func TestEntra(t *testing.T) {
	f := newFake(t)
	var refused, requests atomic.Int32
	secure := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		if r.Header.Get("Authorization") != "type=aad&ver=1.0&sig=the-token" {
			refused.Add(1)
		}
		f.serve(w, r)
	}))
	defer secure.Close()
	f.URL = secure.URL // where the account says that it is

	var c tokens
	c.fail.Store(true)
	s, err := NewEntra(secure.URL, &c, "db", "docs", &Config{Client: azcosmos.ClientOptions{ClientOptions: azcore.ClientOptions{Transport: secure.Client()}}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	r := submit(t, s, document(0))[0]
	if !errors.Is(r.Err, sluice.ErrOutage) || !strings.Contains(r.Err.Error(), "no token from Entra ID: ManagedIdentityCredential: no identity here") || strings.Contains(r.Err.Error(), "\n") {
		t.Errorf("%v", r.Err)
	}
	c.fail.Store(false)
	if r := submit(t, s, document(0))[0]; r.Err != nil || f.count() != 1 || refused.Load() > 0 || requests.Load() < 4 {
		t.Errorf("%+v, %d documents, %d of %d requests without the token", r, f.count(), refused.Load(), requests.Load())
	}
}

// A certificate that is not trusted is an outage.
func TestUntrusted(t *testing.T) {
	f := newFake(t)
	secure := httptest.NewUnstartedServer(http.HandlerFunc(f.serve))
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	defer secure.Close()
	s := open(t, secure.URL, testKey, nil)
	r := submit(t, s, document(0))[0]
	if !errors.Is(r.Err, sluice.ErrOutage) || !strings.Contains(r.Err.Error(), "certificate") {
		t.Errorf("%v", r.Err)
	}
	// And the other way round.
	s = open(t, strings.Replace(f.URL, "http://", "https://", 1), testKey, nil)
	if r := submit(t, s, document(0))[0]; !errors.Is(r.Err, sluice.ErrOutage) {
		t.Errorf("%v", r.Err)
	}
}
