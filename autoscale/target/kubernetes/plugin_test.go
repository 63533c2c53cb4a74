package kubernetes_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/autoscale/target/kubernetes"
	"github.com/sluice-go/sluice/internal/proof/need"
)

const v1 = "client.authentication.k8s.io/v1"

// TestMain makes the test binary a plug-in where PLUGIN_DIR is set: it appends its arguments and
// KUBERNETES_EXEC_INFO to the file requests in that directory, and prints the file answer. Without
// the file answer it waits.
func TestMain(m *testing.M) {
	dir := os.Getenv("PLUGIN_DIR")
	if dir == "" {
		os.Exit(m.Run())
	}
	requests, err := os.OpenFile(filepath.Join(dir, "requests"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = fmt.Fprintln(requests, strings.Join(os.Args[1:], " "), os.Getenv("KUBERNETES_EXEC_INFO"))
	}
	if err != nil {
		panic(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "answer"))
	if err != nil {
		time.Sleep(time.Hour) // until it is killed
	}
	fmt.Print(string(text))
	if strings.HasPrefix(string(text), "fail") {
		fmt.Fprintln(os.Stderr, "log in\nno such tenant for hunter2")
		os.Exit(7)
	}
}

// plugin is the plug-in of a test.
type plugin struct {
	*cluster
	dir string
}

func newPlugin(c *cluster) *plugin {
	need.RealTime(c) // each request starts this binary
	return &plugin{c, c.TempDir()}
}

// user returns a user with the plug-in.
func (p *plugin) user(more object) object {
	program, err := os.Executable()
	if err != nil {
		p.Fatal(err)
	}
	all := object{"command": program, "args": []string{"get-token"}, "apiVersion": v1, "interactiveMode": "IfAvailable",
		"env": []any{object{"name": "PLUGIN_DIR", "value": p.dir}}}
	maps.Copy(all, more)
	return object{"exec": all}
}

// answer sets what the plug-in prints.
func (p *plugin) answer(version string, status object) {
	p.Helper()
	text, err := json.Marshal(object{"kind": "ExecCredential", "apiVersion": version, "status": status})
	if err != nil {
		p.Fatal(err)
	}
	p.print(string(text))
}

func (p *plugin) print(text string) {
	p.Helper()
	if err := os.WriteFile(filepath.Join(p.dir, "answer"), []byte(text), 0o600); err != nil {
		p.Fatal(err)
	}
}

// requests returns the input of each run of the plug-in.
func (p *plugin) requests() []string {
	text, _ := os.ReadFile(filepath.Join(p.dir, "requests")) // not there yet
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}

func (p *plugin) target(user object) *kubernetes.Target {
	p.Helper()
	t, err := kubernetes.New(&kubernetes.Config{Name: "workers", Kubeconfig: p.kubeconfig(nil, user)})
	if err != nil {
		p.Fatal(err)
	}
	return t
}

func TestPlugin(t *testing.T) {
	pair := person(t, "operator")
	for name, is := range map[string]struct {
		version string
		status  object
	}{
		"token":       {v1, object{"token": "hunter2"}},
		"beta":        {v1 + "beta1", object{"token": "hunter2", "expirationTimestamp": nil}},
		"certificate": {v1, object{"clientCertificateData": string(pair.CertPEM), "clientKeyData": string(pair.KeyPEM)}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlugin(newCluster(t))
			if is.status["token"] == nil {
				p.access = func(r *http.Request) bool {
					return len(r.TLS.PeerCertificates) == 1 && r.TLS.PeerCertificates[0].Equal(pair.Leaf)
				}
			}
			p.answer(is.version, is.status)
			target := p.target(p.user(object{"apiVersion": is.version}))
			for range 3 {
				if n, err := target.Instances(t.Context()); err != nil || n != 2 {
					t.Errorf("%d, %v", n, err)
				}
			}
			want := fmt.Sprintf(`get-token {"kind":"ExecCredential","apiVersion":%q,"spec":{"interactive":false}}`, is.version)
			if got := p.requests(); len(got) != 1 || got[0] != want {
				t.Errorf("its input was %q, want %q once", got, want)
			}
		})
	}
}

// TestExpiry: credentials are renewed once they have expired, and once the API server no longer
// accepts them.
func TestExpiry(t *testing.T) {
	p := newPlugin(newCluster(t))
	target := p.target(p.user(nil))
	read := func(wantRuns int) {
		t.Helper()
		if _, err := target.Instances(t.Context()); err != nil || len(p.requests()) != wantRuns {
			t.Errorf("%v after %d runs, want %d", err, len(p.requests()), wantRuns)
		}
	}
	p.answer(v1, object{"token": "hunter2", "expirationTimestamp": time.Now().Add(-time.Hour).Format(time.RFC3339)})
	read(1)
	p.answer(v1, object{"token": "hunter2", "expirationTimestamp": time.Now().Add(time.Hour).Format(time.RFC3339)})
	read(2)
	read(2)
	p.answer(v1, object{"token": "hunter3"})
	p.access = func(r *http.Request) bool { return r.Header.Get("Authorization") == "Bearer hunter3" }
	read(3)
	read(3)
	p.access = func(r *http.Request) bool { return false }
	if _, err := target.Instances(t.Context()); err == nil || !strings.Contains(err.Error(), "does not accept its credentials") || len(p.requests()) != 4 {
		t.Errorf("%v after %d runs", err, len(p.requests()))
	}
}

// TestClusterInfo: with provideClusterInfo the input of the plug-in has the cluster.
func TestClusterInfo(t *testing.T) {
	p := newPlugin(newCluster(t))
	p.answer(v1, object{"token": "hunter2"})
	p.write("ca.crt", string(p.ca))
	config := p.kubeconfig(object{"certificate-authority": "ca.crt", "tls-server-name": "example.com",
		"extensions": []any{object{"name": "client.authentication.k8s.io/exec", "extension": object{"audience": []int{7}}}}}, p.user(object{"provideClusterInfo": true}))
	if _, err := p.read(config); err != nil {
		t.Fatal(err)
	}
	var input struct {
		Spec struct{ Cluster object }
	}
	if err := json.Unmarshal([]byte(strings.TrimPrefix(p.requests()[0], "get-token ")), &input); err != nil {
		t.Fatal(err)
	}
	want := object{"server": p.server.URL, "tls-server-name": "example.com", "certificate-authority-data": p.ca, "config": object{"audience": []int{7}}}
	if got := string(must(json.Marshal(input.Spec.Cluster))); got != string(must(json.Marshal(want))) {
		t.Errorf("the input of the plug-in was %s", got)
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// TestPluginFailures: a plug-in that fails, or prints something else, is an error without
// what it printed.
func TestPluginFailures(t *testing.T) {
	p := newPlugin(newCluster(t))
	target := p.target(p.user(nil))
	for text, want := range map[string]string{
		"fail":    "exit status 7: run it by hand to see why",
		"hunter2": "it did not print an ExecCredential",
		`{"kind": "ExecCredential", "apiVersion": "` + v1 + `"}`:                                                                             "it did not print an ExecCredential",
		`{"kind": "ExecCredential", "status": {"token": "hunter2", "expirationTimestamp": "hunter2"}}`:                                       "it did not print an ExecCredential",
		`{"kind": "ExecCredential", "apiVersion": "hunter2", "status": {"token": "hunter2"}}`:                                                "it printed another apiVersion than " + v1,
		`{"kind": "ExecCredential", "apiVersion": "` + v1 + `", "status": {}}`:                                                               "neither a token nor a certificate",
		`{"kind": "ExecCredential", "apiVersion": "` + v1 + `", "status": {"clientKeyData": "hunter2"}}`:                                     "a certificate without a key, or the reverse",
		`{"kind": "ExecCredential", "apiVersion": "` + v1 + `", "status": {"clientCertificateData": "hunter2", "clientKeyData": "hunter2"}}`: "its certificate: tls: ",
		strings.Repeat("hunter2", 200<<10): "it printed more than 1048576 bytes",
	} {
		p.print(text)
		if _, err := target.Instances(t.Context()); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.150s: %v, want %q", text, err, want)
		}
	}
	missing := p.target(p.user(object{"command": "no-such-plugin", "installHint": "go to\nexample.com"}))
	if _, err := missing.Instances(t.Context()); err == nil || !strings.Contains(err.Error(), "exec plug-in no-such-plugin: there is no such program: go to example.com") {
		t.Errorf("a missing program: %v", err)
	}
	missing = p.target(p.user(object{"command": "./bin/plugin"}))
	if _, err := missing.Instances(t.Context()); err == nil || !strings.Contains(err.Error(), "exec plug-in plugin: there is no such program: install it") {
		t.Errorf("a missing program: %v", err)
	}
}

// TestPluginCanceled: who waits for a plug-in does so no longer than its context, also while
// another one has it run.
func TestPluginCanceled(t *testing.T) {
	p := newPlugin(newCluster(t)) // without an answer it does not end
	target := p.target(p.user(nil))
	enough := errors.New("enough")
	read := func(ctx context.Context) chan error {
		ended := make(chan error, 1)
		go func() {
			_, err := target.Instances(ctx)
			ended <- err
		}()
		return ended
	}
	first, cancel := context.WithCancelCause(t.Context())
	running := read(first)
	for end := time.Now().Add(time.Minute); p.requests()[0] == "" && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	second, cancelSecond := context.WithCancelCause(t.Context())
	waiting := read(second)
	cancelSecond(enough)
	if err := <-waiting; !errors.Is(err, enough) {
		t.Error(err)
	}
	cancel(enough)
	if err := <-running; !errors.Is(err, enough) {
		t.Error(err)
	}
}
