package kubernetes_test

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/autoscale/target/kubernetes"
	"github.com/sluice-go/sluice/internal/selfsigned"
)

type object = map[string]any

// kubeconfig writes a kubeconfig with one context, and returns its path.
func (c *cluster) kubeconfig(cluster, user object) string {
	c.Helper()
	all := object{"server": c.server.URL}
	if cluster == nil {
		all["certificate-authority-data"] = c.ca
	}
	maps.Copy(all, cluster)
	text, err := json.Marshal(object{
		"clusters": []any{object{"name": "c", "cluster": all}}, "users": []any{object{"name": "u", "user": user}},
		"contexts": []any{object{"name": "x", "context": object{"cluster": "c", "user": "u", "namespace": "shop"}}}, "current-context": "x",
	})
	if err != nil {
		c.Fatal(err)
	}
	return c.write("config", string(text))
}

// write writes a file beside the kubeconfig, and returns its path.
func (c *cluster) write(name, text string) string {
	c.Helper()
	path := filepath.Join(filepath.Dir(c.config), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		c.Fatal(err)
	}
	return path
}

// read returns the replicas of the Deployment, with a kubeconfig.
func (c *cluster) read(kubeconfig string) (int, error) {
	target, err := kubernetes.New(&kubernetes.Config{Name: "workers", Kubeconfig: kubeconfig})
	if err != nil {
		return 0, err
	}
	return target.Instances(c.Context())
}

// person returns a certificate and its key.
func person(t *testing.T, name string) *selfsigned.Certificate {
	t.Helper()
	pair, err := selfsigned.New(&selfsigned.Config{CommonName: name, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// TestCredentials: the API server sees who the kubeconfig's user is.
func TestCredentials(t *testing.T) {
	c := newCluster(t)
	pair := person(t, "operator")
	c.write("token", "from-file\n")
	c.write("operator.crt", string(pair.CertPEM))
	c.write("operator.key", string(pair.KeyPEM))
	for name, is := range map[string]struct {
		user object
		want string
	}{
		"token":             {object{"token": "hunter2"}, "Bearer hunter2"},
		"token of digits":   {object{"token": 1234}, "Bearer 1234"},
		"file":              {object{"tokenFile": "token", "token": "old"}, "Bearer from-file"},
		"password":          {object{"username": "me", "password": "p:w"}, "Basic " + base64.StdEncoding.EncodeToString([]byte("me:p:w"))},
		"certificate files": {object{"client-certificate": "operator.crt", "client-key": "operator.key"}, "operator"},
		"certificate data":  {object{"client-certificate-data": pair.CertPEM, "client-key-data": pair.KeyPEM}, "operator"},
		"certificate, token": {object{"client-certificate-data": pair.CertPEM, "client-key-data": pair.KeyPEM, "token": "t"},
			"Bearer t operator"},
		"impersonation": {object{"token": "t", "as": "jane", "as-uid": "7", "as-groups": []string{"a", "b"}, "as-user-extra": object{"ex.io/a b": []string{"v"}}},
			"Bearer t [jane] [7] [a b] [v]"},
		"nobody": {object{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			c.access = func(r *http.Request) bool {
				got = nil
				if a := r.Header.Get("Authorization"); a != "" {
					got = append(got, a)
				}
				for _, peer := range r.TLS.PeerCertificates {
					got = append(got, peer.Subject.CommonName)
				}
				for _, key := range []string{"User", "Uid", "Group", "Extra-Ex.io%2fa%20b"} {
					if as := r.Header["Impersonate-"+key]; as != nil {
						got = append(got, fmt.Sprint(as))
					}
				}
				return true
			}
			if n, err := c.read(c.kubeconfig(nil, is.user)); err != nil || n != 2 || strings.Join(got, " ") != is.want {
				t.Errorf("%d, %v; the server saw %q, want %q", n, err, got, is.want)
			}
		})
	}
}

// TestRotation: a token and a certificate that change in their files are used from the next
// request on.
func TestRotation(t *testing.T) {
	c := newCluster(t)
	c.write("token", "first")
	old, fresh := person(t, "old"), person(t, "fresh")
	c.write("crt", string(old.CertPEM))
	c.write("key", string(old.KeyPEM))
	target := c.target(kubernetes.Config{Name: "workers", Kubeconfig: c.kubeconfig(nil, object{"tokenFile": "token", "client-certificate": "crt", "client-key": "key"})})
	accept := func(token string, of *x509.Certificate) {
		c.access = func(r *http.Request) bool {
			return r.Header.Get("Authorization") == "Bearer "+token && r.TLS.PeerCertificates[0].Equal(of)
		}
	}
	accept("first", old.Leaf)
	if _, err := target.Instances(t.Context()); err != nil {
		t.Error(err)
	}
	accept("second", fresh.Leaf)
	if _, err := target.Instances(t.Context()); err == nil || !strings.Contains(err.Error(), "does not accept its credentials: renew them") || strings.Contains(err.Error(), "first") {
		t.Errorf("with the old ones: %v", err)
	}
	c.write("token", "second")
	c.write("crt", string(fresh.CertPEM))
	c.write("key", string(fresh.KeyPEM))
	if _, err := target.Instances(t.Context()); err != nil {
		t.Error(err)
	}
	c.write("token", " \n")
	if _, err := target.Instances(t.Context()); err == nil || !strings.Contains(err.Error(), "is empty") {
		t.Errorf("an empty file: %v", err)
	}
}

// TestServers: the API server is trusted, and reached, as the kubeconfig says.
func TestServers(t *testing.T) {
	c := newCluster(t)
	c.write("ca.crt", string(c.ca))
	other := person(t, "other")
	for _, is := range []struct {
		cluster object
		want    string // in the error, none if empty
	}{
		{object{"certificate-authority": "ca.crt"}, ""},
		{object{"certificate-authority-data": c.ca, "tls-server-name": "example.com"}, ""},
		{object{"certificate-authority-data": c.ca, "tls-server-name": "other.invalid"}, "not other.invalid"},
		{object{"insecure-skip-tls-verify": true}, ""},
		{object{"certificate-authority-data": other.CertPEM}, "signed by unknown authority"},
		{object{}, "signed by unknown authority"},
	} {
		if _, err := c.read(c.kubeconfig(is.cluster, object{"token": "hunter2"})); (err == nil) != (is.want == "") || err != nil && !strings.Contains(err.Error(), is.want) {
			t.Errorf("%v: %v, want %q", is.cluster, err, is.want)
		}
	}
}

// TestProxy: requests go through proxy-url, and errors do not show its password.
func TestProxy(t *testing.T) {
	c := newCluster(t)
	var request string
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		request = r.Method + " " + r.Host + " " + r.Header.Get("Proxy-Authorization")
		w.WriteHeader(http.StatusBadGateway)
	}))
	defer proxy.Close()
	_, err := c.read(c.kubeconfig(object{"proxy-url": strings.Replace(proxy.URL, "//", "//me:hunter2@", 1)}, object{}))
	want := "CONNECT " + c.server.Listener.Addr().String() + " Basic " + base64.StdEncoding.EncodeToString([]byte("me:hunter2"))
	if err == nil || strings.Contains(err.Error(), "hunter2") || request != want {
		t.Errorf("%v; the proxy got %s, want %s", err, request, want)
	}
}

// TestPlainHTTP: credentials are not sent where anybody can read them.
func TestPlainHTTP(t *testing.T) {
	c := newCluster(t)
	var got http.Header
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.Header
		fmt.Fprint(w, scaleOf("workers", 3))
	}))
	defer plain.Close()
	if n, err := c.read(c.kubeconfig(object{"server": plain.URL}, object{"token": "hunter2", "as": "jane"})); err != nil || n != 3 || got.Get("Authorization") != "" || got.Get("Impersonate-User") != "jane" {
		t.Errorf("%d, %v, %v", n, err, got)
	}
}

// TestPod: in a pod without a kubeconfig, its service account connects, in its namespace.
func TestPod(t *testing.T) {
	c := newCluster(t)
	dir := t.TempDir()
	for name, text := range map[string]string{"token": "hunter2", "ca.crt": string(c.ca), "namespace": "shop"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	defer kubernetes.SetServiceAccount(dir)()
	host, port, _ := strings.Cut(c.server.Listener.Addr().String(), ":")
	for name, value := range map[string]string{"HOME": dir, "KUBECONFIG": "", "POD_NAMESPACE": "", "KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port} {
		t.Setenv(name, value)
	}
	if n, err := c.read(""); err != nil || n != 2 {
		t.Errorf("%d, %v", n, err)
	}
	t.Setenv("POD_NAMESPACE", "other")
	if _, err := c.read(""); err == nil || !strings.Contains(err.Error(), "Deployment other/workers") {
		t.Errorf("in another namespace: %v", err)
	}
	t.Setenv("KUBECONFIG", c.kubeconfig(nil, object{"token": "wrong"}))
	if _, err := c.read(""); err == nil || !strings.Contains(err.Error(), "context x: the API server does not accept its credentials") {
		t.Errorf("a kubeconfig comes first: %v", err)
	}
	t.Setenv("KUBECONFIG", "")
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	if _, err := c.read(""); err == nil || !strings.Contains(err.Error(), "name a file with kubeconfig") {
		t.Errorf("neither: %v", err)
	}
	_, err := kubernetes.New(&kubernetes.Config{Name: "workers", Context: "prod"})
	if want := "kubernetes: context prod: neither KUBECONFIG nor ~/.kube/config leads to a kubeconfig: name a file with kubeconfig"; err == nil || err.Error() != want {
		t.Errorf("a context without a kubeconfig: %v, want %s", err, want)
	}
}

// TestSilentHandshake: a request that ends also ends its handshake with a server that is silent.
func TestSilentHandshake(t *testing.T) {
	c := newCluster(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	target := c.target(kubernetes.Config{Name: "workers", Kubeconfig: c.kubeconfig(object{"server": "https://" + silent.Addr().String()}, object{})})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := target.Instances(ctx)
		silent.Close() // or Accept waits for ever
		ended <- err
	}()
	connection, err := silent.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	// Less than a handshake may take.
	if err := connection.SetReadDeadline(time.Now().Add(8 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, connection); err != nil {
		t.Errorf("the connection stays open: %v", err)
	}
}
