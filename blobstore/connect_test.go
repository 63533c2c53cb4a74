package blobstore_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/sas"

	"github.com/sluice-go/sluice/blobstore"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/azurite"
)

// works takes a lease and leaves a checkpoint and a dead letter.
func works(t *testing.T, s *blobstore.Store) {
	t.Helper()
	l := acquire(t, s, "a")
	claim(t, s, l)
	if err := s.Advance(t.Context(), l, "incarnation 1", positionAt(1), nil); err != nil {
		t.Error(err)
	}
	letter := driver.DeadLetter{Group: group, Status: driver.StatusDead, HasBody: true, Event: driver.Event{Partition: "0", Sequence: 2, Body: []byte("x")}}
	if err := s.Park(t.Context(), []driver.DeadLetter{letter}); err != nil {
		t.Error(err)
	}
	if err := s.Leases().Release(t.Context(), l); err != nil {
		t.Error(err)
	}
}

// signed is the container's URL with a signature of these rights.
func (p place) signed(t *testing.T, rights sas.ContainerPermissions) string {
	t.Helper()
	u, err := p.client(t).GetSASURL(rights, time.Now().Add(time.Hour), nil)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func TestSignature(t *testing.T) {
	p := newPlace(t)
	p.open(t) // a signature of a container can't create it
	where := p.signed(t, sas.ContainerPermissions{Read: true, Add: true, Create: true, Write: true, Delete: true, List: true})
	s, err := blobstore.Open(t.Context(), where, &blobstore.Config{Prefix: "sluice/"})
	if err != nil {
		t.Fatal(err)
	}
	works(t, s)
	if _, err := p.client(t).NewBlobClient("sluice/"+blob).GetProperties(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

func TestConnectionStrings(t *testing.T) {
	p := newPlace(t)
	works(t, p.open(t))
	whole := p.client(t).URL()
	s, err := blobstore.Open(t.Context(), whole+"/", &blobstore.Config{ConnectionString: p.connection})
	if err != nil {
		t.Fatal(err)
	}
	if len(leaseInfo(t, s).Owner) == 0 {
		t.Error("the container by its URL is another one")
	}
	u, err := url.Parse(p.signed(t, sas.ContainerPermissions{Read: true, Write: true, List: true}))
	if err != nil {
		t.Fatal(err)
	}
	endpoint := strings.TrimSuffix(whole, "/"+p.name)
	if _, err := blobstore.Open(t.Context(), p.name, &blobstore.Config{ConnectionString: "BlobEndpoint=" + endpoint + ";SharedAccessSignature=" + u.RawQuery}); err != nil {
		t.Error(err)
	}
}

// token is a credential with a token that is ready made.
type token string

func (c token) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{Token: string(c), ExpiresOn: time.Now().Add(time.Hour)}, nil
}

func TestEntra(t *testing.T) {
	server := azurite.New(t, &azurite.Config{TLS: true})
	open := func(credential azcore.TokenCredential) (*blobstore.Store, error) {
		return blobstore.Open(t.Context(), server.URL()+"/entra", &blobstore.Config{
			Credential: credential, Client: azcore.ClientOptions{Transport: server.Client()},
		})
	}
	s, err := open(token(azurite.Token(time.Now().Add(time.Hour), "")))
	if err != nil {
		t.Fatal(err)
	}
	works(t, s)
	stale := azurite.Token(time.Now().Add(-time.Second), "")
	if _, err := open(token(stale)); err == nil || !strings.Contains(err.Error(), "403") || strings.Contains(err.Error(), stale) {
		t.Errorf("with a token that has expired: %v", err)
	}
}

// Errors say what to do, in one line, and no secrets.
func TestConnectErrors(t *testing.T) {
	p := newPlace(t)
	p.open(t)
	const key = "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0"
	wrongKey := strings.Replace(p.connection, azurite.Key, key, 1)
	whole := p.client(t).URL()
	readOnly := p.signed(t, sas.ContainerPermissions{Read: true})
	signature := func(u string) string {
		parsed, err := url.Parse(u)
		if err != nil {
			t.Fatal(err)
		}
		return parsed.Query().Get("sig")
	}
	never := azcore.ClientOptions{Retry: policy.RetryOptions{MaxRetries: -1}}
	for name, c := range map[string]struct {
		where   string
		cfg     blobstore.Config
		says    []string
		secrets []string
	}{
		"wrong key":             {p.name, blobstore.Config{ConnectionString: wrongKey}, []string{p.name, "403", "check the key"}, []string{key}},
		"rights missing":        {readOnly, blobstore.Config{}, []string{p.name, "403"}, []string{signature(readOnly), "sig="}},
		"broken key":            {p.name, blobstore.Config{ConnectionString: strings.Replace(p.connection, azurite.Key, "?"+key, 1)}, []string{"connection string", "Access keys"}, []string{key}},
		"no connection string":  {p.name, blobstore.Config{ConnectionString: key}, []string{"connection string", "AccountKey=…"}, []string{key}},
		"another account":       {"https://other.blob.core.windows.net/" + p.name, blobstore.Config{ConnectionString: p.connection}, []string{"other", "127.0.0.1"}, []string{azurite.Key}},
		"no credentials":        {whole, blobstore.Config{}, []string{"connection string", "signature", "Entra ID"}, nil},
		"token without https":   {whole, blobstore.Config{Credential: token(key)}, []string{"https"}, []string{key}},
		"name alone":            {"sluice", blobstore.Config{}, []string{`"sluice"`, "connection string", "https://ACCOUNT"}, nil},
		"no container":          {"https://a.blob.core.windows.net/?sig=" + key, blobstore.Config{}, []string{"no container"}, []string{key}},
		"not a URL":             {"https://a b/c?sig=" + key, blobstore.Config{}, []string{"cannot be read"}, []string{key}},
		"a signature alone":     {"sv=1&sig=" + key, blobstore.Config{}, []string{"https://ACCOUNT"}, []string{key}},
		"nothing":               {"", blobstore.Config{}, []string{"https://ACCOUNT"}, nil},
		"nobody there":          {"http://127.0.0.1:1/account/container?sig=" + key, blobstore.Config{Client: never}, []string{"127.0.0.1:1", "refused"}, []string{key}},
		"nobody of that name":   {"https://sluice.invalid/container?sig=" + key, blobstore.Config{Client: never}, []string{"sluice.invalid"}, []string{key}},
		"a name Azure can't":    {"http://" + hostOf(t, whole) + "/devstoreaccount1/-?sig=" + key, blobstore.Config{Client: never}, []string{"Azure Storage returned"}, []string{key}},
		"a prefix with a slash": {p.name, blobstore.Config{ConnectionString: p.connection, Prefix: "/x"}, []string{"slash"}, nil},
	} {
		_, err := blobstore.Open(t.Context(), c.where, &c.cfg)
		if err == nil {
			t.Errorf("%s: opened", name)
			continue
		}
		t.Logf("%s: %v", name, err)
		if strings.ContainsAny(err.Error(), "\r\n") {
			t.Errorf("%s: several lines: %v", name, err)
		}
		for _, s := range c.says {
			if !strings.Contains(err.Error(), s) {
				t.Errorf("%s: %q lacks %q", name, err, s)
			}
		}
		for _, s := range c.secrets {
			if strings.Contains(err.Error(), s) || strings.Contains(err.Error(), url.QueryEscape(s)) {
				t.Errorf("%s: %q tells a secret", name, err)
			}
		}
	}
}

func hostOf(t *testing.T, text string) string {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

// A server that answers with something else is an error, not a panic.
func TestStrangeServer(t *testing.T) {
	for name, answer := range map[string]func(w http.ResponseWriter, r *http.Request){
		"empty":    func(w http.ResponseWriter, r *http.Request) {},
		"web page": func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte("<html>sign in</html>")) },
		"no XML":   func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte("{}")) },
	} {
		server := newServer(t, answer)
		s, err := blobstore.Open(t.Context(), server+"/account/container?sig=x", nil)
		if err != nil {
			continue
		}
		if l, err := s.Leases().Acquire(t.Context(), group, "0", "a", blobstore.MinLease, 0); err == nil {
			t.Errorf("%s: acquired %+v", name, l)
		}
		if list, err := s.Leases().List(t.Context(), group); err == nil && len(list) > 0 {
			t.Errorf("%s: listed %v", name, list)
		}
		if _, err := s.Get(t.Context(), group, 1<<16); err == nil {
			t.Errorf("%s: a dead letter", name)
		}
	}
}

func newServer(t *testing.T, answer http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	return server.URL
}
