package kubernetes

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice/internal/proof/freeport"
	"github.com/sluice-go/sluice/internal/proof/need"
)

var update = flag.Bool("update", false, "rewrite docs/reference/chart.md")

// server is the API server of all tests of this package.
var server *cluster

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	thing, _ := need.Lookup("kubernetes")
	if wanted, _ := need.Demanded(os.Getenv(need.Variable), "kubernetes"); !wanted || !thing.Found() {
		return m.Run() // the tests skip or fail
	}
	dir, err := os.MkdirTemp("", "sluice-kubernetes-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	server, err = start(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer server.stop()
	return m.Run()
}

// root returns the repository's directory.
var root = sync.OnceValue(func() string {
	dir, err := filepath.Abs("../../../../..")
	if err != nil {
		panic(err)
	}
	return dir
})

// program returns the path of what scripts/install-kubernetes has installed.
func program(name string) string { return filepath.Join(root(), ".dev", "kubernetes", name) }

// serverProgram returns the path of kube-apiserver or etcd: by the variables of envtest, else
// that which was installed.
func serverProgram(name, variable string) string {
	if path := os.Getenv(variable); path != "" {
		return path
	}
	if dir := os.Getenv("KUBEBUILDER_ASSETS"); dir != "" {
		return filepath.Join(dir, name)
	}
	return program(name)
}

// cluster is a kube-apiserver over an etcd, on loopback.
type cluster struct {
	dir, url, token string
	client          *http.Client
	processes       []*exec.Cmd
	running         sync.WaitGroup
	exited          chan error
}

// start starts a cluster. Another process may take one of its ports before it listens there, so it
// tries again.
func start(dir string) (c *cluster, err error) {
	for try := range 3 {
		c, err = startIn(filepath.Join(dir, fmt.Sprint(try)))
		if err == nil || !strings.Contains(err.Error(), "address already in use") {
			break
		}
	}
	return c, err
}

func startIn(dir string) (*cluster, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	ports, err := freePorts(3)
	if err != nil {
		return nil, err
	}
	secret := make([]byte, 16)
	_, _ = rand.Read(secret)
	c := &cluster{dir: dir, url: fmt.Sprintf("https://127.0.0.1:%d", ports[0]), token: fmt.Sprintf("%x", secret), exited: make(chan error, 2)}
	if err := c.writeCredentials(); err != nil {
		return nil, err
	}
	etcd, peer := fmt.Sprintf("http://127.0.0.1:%d", ports[1]), fmt.Sprintf("http://127.0.0.1:%d", ports[2])
	// Nothing has to outlive the tests, so nothing waits for the disk.
	err = c.run(serverProgram("etcd", "TEST_ASSET_ETCD"), "--data-dir", c.path("etcd"), "--unsafe-no-fsync", "--listen-client-urls", etcd, "--advertise-client-urls", etcd,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default="+peer)
	if err == nil {
		err = c.run(serverProgram("kube-apiserver", "TEST_ASSET_KUBE_APISERVER"), "--etcd-servers="+etcd, "--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", ports[0]),
			"--advertise-address=127.0.0.1", "--cert-dir="+c.path("certs"), "--token-auth-file="+c.path("tokens.csv"), "--authorization-mode=RBAC",
			"--service-cluster-ip-range=10.0.0.0/24", "--endpoint-reconciler-type=none", "--service-account-issuer=https://kubernetes.default.svc",
			"--service-account-key-file="+c.path("sa.key"), "--service-account-signing-key-file="+c.path("sa.key"), "--disable-admission-plugins=ServiceAccount")
	}
	if err == nil {
		err = c.waitReady()
	}
	if err != nil {
		c.stop()
		return nil, err
	}
	return c, nil
}

func freePorts(n int) ([]int, error) {
	ports := make([]int, n)
	for i := range ports {
		l, err := freeport.Listen()
		if err != nil {
			return nil, err
		}
		defer l.Close()
		ports[i] = l.Addr().(*net.TCPAddr).Port
	}
	return ports, nil
}

func (c *cluster) path(name string) string { return filepath.Join(c.dir, name) }

func (c *cluster) writeCredentials() error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	return errors.Join(os.WriteFile(c.path("sa.key"), text, 0o600), os.WriteFile(c.path("tokens.csv"), []byte(c.token+",admin,admin,system:masters\n"), 0o600))
}

func (c *cluster) run(path string, args ...string) error {
	log, err := os.Create(c.path(filepath.Base(path) + ".log"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%w: run scripts/install-kubernetes", err)
	}
	c.processes = append(c.processes, cmd)
	c.running.Go(func() { c.exited <- fmt.Errorf("%s: %v", filepath.Base(path), cmd.Wait()) })
	return nil
}

func (c *cluster) waitReady() error {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	for again := time.NewTicker(50 * time.Millisecond); ; {
		select {
		case <-ctx.Done():
			return fmt.Errorf("kube-apiserver is not ready after 3 minutes: %s", c.tail())
		case err := <-c.exited:
			return fmt.Errorf("%w: %s", err, c.tail())
		case <-again.C:
		}
		if pem, err := os.ReadFile(c.path("certs/apiserver.crt")); err == nil {
			trusted := x509.NewCertPool()
			trusted.AppendCertsFromPEM(pem)
			c.client = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted}, MaxIdleConnsPerHost: 8}, Timeout: time.Minute}
			if code, _ := c.do("GET", "/readyz", "", nil); code == http.StatusOK {
				return nil
			}
			c.client.CloseIdleConnections()
		}
	}
}

// tail is the end of both logs.
func (c *cluster) tail() (text string) {
	for _, name := range []string{"etcd", "kube-apiserver"} {
		log, _ := os.ReadFile(c.path(name + ".log")) // not there yet
		text += fmt.Sprintf("\n%s: %s", name, log[max(0, len(log)-1000):])
	}
	return text
}

func (c *cluster) stop() {
	for _, p := range c.processes {
		_ = p.Process.Kill()
	}
	c.running.Wait()
}

// do sends a request, as an administrator or as another user and his groups. The code is 0 if
// there was no answer.
func (c *cluster) do(method, path, contentType string, body []byte, as ...string) (int, []byte) {
	r, err := http.NewRequest(method, c.url+path, bytes.NewReader(body))
	if err != nil {
		panic(err)
	}
	r.Header.Set("Authorization", "Bearer "+c.token)
	r.Header.Set("Content-Type", cmp.Or(contentType, "application/json"))
	for i, name := range as {
		r.Header.Add([]string{"Impersonate-User", "Impersonate-Group"}[min(i, 1)], name)
	}
	response, err := c.client.Do(r)
	if err != nil {
		return 0, []byte(err.Error())
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, []byte(err.Error())
	}
	return response.StatusCode, answer
}

// kubeconfig writes a kubeconfig for an administrator, or for another user and his groups.
func (c *cluster) kubeconfig(t *testing.T, as ...string) string {
	user := map[string]any{"token": c.token}
	if len(as) > 0 {
		user["as"], user["as-groups"] = as[0], as[1:]
	}
	text, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "test",
		"clusters": []any{map[string]any{"name": "test", "cluster": map[string]any{"server": c.url, "certificate-authority": c.path("certs/apiserver.crt")}}},
		"users":    []any{map[string]any{"name": "user", "user": user}},
		"contexts": []any{map[string]any{"name": "test", "context": map[string]any{"cluster": "test", "user": "user"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// namespace makes a namespace that enforces the Pod Security Standard "restricted".
func (c *cluster) namespace(t *testing.T, name string) string {
	t.Helper()
	c.apply(t, object{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name,
		"labels": map[string]any{"pod-security.kubernetes.io/enforce": "restricted"}}}, "")
	return name
}

// apply applies an object server-side. A field that its kind does not have is an error.
func (c *cluster) apply(t *testing.T, o object, query string) {
	t.Helper()
	if code, answer := c.tryApply(o, query); code != http.StatusOK && code != http.StatusCreated {
		t.Errorf("%s %s: %d %s", o.kind(), o.name(), code, message(answer))
	}
}

func (c *cluster) tryApply(o object, query string) (int, []byte) {
	body, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	return c.do("PATCH", o.path()+"?fieldManager=test&force=true&fieldValidation=Strict"+query, "application/apply-patch+yaml", body)
}

// message is the text of a Status.
func message(answer []byte) string {
	var status struct{ Message string }
	_ = json.Unmarshal(answer, &status)
	return cmp.Or(status.Message, strings.TrimSpace(string(answer)))
}
