package kubernetes_test

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/autoscale/target/kubernetes"
)

// cluster is a stand-in for an API server: it serves the scale subresource as Kubernetes
// documents it, with its conflicts. The client is the real one, over HTTP. The same target
// on a real API server is in cmd/sluice/internal/proof/kubernetes.
type cluster struct {
	*testing.T
	mu        sync.Mutex
	replicas  map[string]int32 // by path of the owner
	version   int
	conflicts int // updates that another one is to overtake
	updates   int
	config    string
	server    *httptest.Server
	ca        []byte
	access    func(*http.Request) bool // who is let in; by default the token hunter2
	forbidden bool                     // nothing is allowed
	answer    string                   // to every request, if set
	hold      chan struct{}            // if set, requests wait for its end
}

const deployment, stateful = "/apis/apps/v1/namespaces/shop/deployments/workers", "/apis/apps/v1/namespaces/shop/statefulsets/readers"

func newCluster(t *testing.T) *cluster {
	c := &cluster{T: t, replicas: map[string]int32{deployment: 2, stateful: 3}, version: 1}
	c.access = func(r *http.Request) bool { return r.Header.Get("Authorization") == "Bearer hunter2" }
	c.server = httptest.NewUnstartedServer(c)
	c.server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	c.server.Config.ErrorLog = log.New(io.Discard, "", 0) // clients that do not trust it
	c.server.StartTLS()
	t.Cleanup(c.server.Close)
	c.ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.server.Certificate().Raw})
	c.config = filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "here",
		"clusters": [{"name": "c", "cluster": {"server": %q, "certificate-authority-data": %q}}], "users": [{"name": "u", "user": {"token": "hunter2"}}],
		"contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "shop"}}]}`, c.server.URL, base64.StdEncoding.EncodeToString(c.ca))
	if err := os.WriteFile(c.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return c
}

type scale struct {
	Kind       string `json:"kind"`
	APIVersion string `json:"apiVersion"`
	Metadata   struct {
		Name    string `json:"name"`
		Version string `json:"resourceVersion"`
	} `json:"metadata"`
	Spec struct {
		Replicas int32 `json:"replicas"`
	} `json:"spec"`
}

func (c *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if c.hold != nil {
		<-c.hold
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	owner, of := strings.CutSuffix(r.URL.Path, "/scale")
	_, known := c.replicas[owner]
	switch {
	case c.answer != "":
		_, _ = io.WriteString(w, c.answer)
		return
	case !c.access(r):
		status(w, http.StatusUnauthorized, "Unauthorized")
		return
	case c.forbidden:
		status(w, http.StatusForbidden, "Forbidden")
		return
	case !of || !known:
		status(w, http.StatusNotFound, "NotFound")
		return
	case r.Method == http.MethodPut:
		if c.conflicts > 0 {
			c.conflicts--
			c.version++
		}
		var s scale
		if err := json.NewDecoder(r.Body).Decode(&s); err != nil || s.Kind != "Scale" || s.APIVersion != "autoscaling/v1" {
			status(w, http.StatusBadRequest, "BadRequest")
			return
		}
		if s.Metadata.Version != fmt.Sprint(c.version) {
			status(w, http.StatusConflict, "Conflict")
			return
		}
		c.updates++
		c.version++
		c.replicas[owner] = s.Spec.Replicas
	}
	var s scale
	s.Kind, s.APIVersion, s.Metadata.Version, s.Spec.Replicas = "Scale", "autoscaling/v1", fmt.Sprint(c.version), c.replicas[owner]
	s.Metadata.Name = owner[strings.LastIndexByte(owner, '/')+1:]
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(s)
}

func status(w http.ResponseWriter, code int, reason string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"because","reason":%q,"code":%d}`, reason, code)
}

func (c *cluster) target(cfg kubernetes.Config) *kubernetes.Target {
	c.Helper()
	if cfg.Kubeconfig == "" {
		cfg.Kubeconfig = c.config
	}
	t, err := kubernetes.New(&cfg)
	if err != nil {
		c.Fatal(err)
	}
	return t
}

func TestScale(t *testing.T) {
	c := newCluster(t)
	for _, of := range []struct {
		cfg  kubernetes.Config
		path string
	}{
		{kubernetes.Config{Name: "workers"}, deployment},
		{kubernetes.Config{Kind: "StatefulSet", Name: "readers", Namespace: "shop"}, stateful},
	} {
		target := c.target(of.cfg)
		if n, err := target.Instances(t.Context()); err != nil || n != int(c.replicas[of.path]) {
			t.Errorf("%s: %d replicas, %v", of.path, n, err)
		}
		for _, want := range []int{5, 0} {
			if err := target.Scale(t.Context(), want); err != nil || c.replicas[of.path] != int32(want) {
				t.Errorf("%s: %d replicas, %v; want %d", of.path, c.replicas[of.path], err, want)
			}
		}
	}
}

func TestConflicts(t *testing.T) {
	c := newCluster(t)
	c.conflicts = 2
	if err := c.target(kubernetes.Config{Name: "workers"}).Scale(t.Context(), 4); err != nil || c.replicas[deployment] != 4 || c.updates != 1 {
		t.Errorf("%v; %d replicas after %d updates", err, c.replicas[deployment], c.updates)
	}
	c.conflicts = 1000
	if err := c.target(kubernetes.Config{Name: "workers"}).Scale(t.Context(), 5); err == nil {
		t.Error("conflicts without end are no error")
	}
	if err := c.target(kubernetes.Config{Name: "workers"}).Scale(t.Context(), 4); err != nil || c.updates != 1 {
		t.Errorf("what is so already is changed: %v, %d updates", err, c.updates)
	}
}

// transport is a function as a client's transport.
type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestConnectionOfOwn(t *testing.T) {
	c := newCluster(t)
	trusting := c.server.Client().Transport
	own := &http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
		r.Header.Set("Authorization", "Bearer hunter2")
		return trusting.RoundTrip(r)
	})}
	target, err := kubernetes.New(&kubernetes.Config{Name: "workers", Namespace: "shop", Server: c.server.URL, Client: own})
	if err != nil {
		t.Fatal(err)
	}
	if err := target.Scale(t.Context(), 4); err != nil || c.replicas[deployment] != 4 {
		t.Errorf("%v; %d replicas", err, c.replicas[deployment])
	}
	for _, cfg := range []kubernetes.Config{{Name: "x", Server: c.server.URL}, {Name: "x", Client: own}} {
		if _, err := kubernetes.New(&cfg); err == nil {
			t.Errorf("one of Server and Client is enough: %+v", cfg)
		}
	}
}

// TestBusy: what a busy API server puts off is sent again after the time that it asks for,
// but not without end.
func TestBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy := 0
		own := &http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
			w := httptest.NewRecorder()
			if busy--; busy >= 0 {
				w.Header().Set("Retry-After", "2")
				w.WriteHeader(http.StatusTooManyRequests)
			} else {
				fmt.Fprint(w, scaleOf("workers", 3))
			}
			return w.Result(), nil
		})}
		target, err := kubernetes.New(&kubernetes.Config{Name: "workers", Server: "http://api", Client: own})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		busy = 3
		if n, err := target.Instances(t.Context()); err != nil || n != 3 || time.Since(began) != 6*time.Second {
			t.Errorf("%d, %v after %v", n, err, time.Since(began))
		}
		busy = 1000
		if _, err := target.Instances(t.Context()); err == nil || !strings.Contains(err.Error(), "HTTP 429") {
			t.Errorf("busy without end: %v", err)
		}
	})
}

// scaleOf is the answer for a Deployment.
func scaleOf(name string, replicas int) string {
	return fmt.Sprintf(`{"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": {"name": %q, "resourceVersion": "1"}, "spec": {"replicas": %d}}`, name, replicas)
}

// TestAnswers: what is not the Scale that was asked for is an error, never a number.
func TestAnswers(t *testing.T) {
	c := newCluster(t)
	for _, answer := range []string{
		"<html>log in</html>", "{}", "null", "[]", "3",
		strings.Replace(scaleOf("workers", 3), "Scale", "List", 1),
		strings.Replace(scaleOf("workers", 3), "autoscaling/v1", "apps/v1", 1),
		strings.Replace(scaleOf("workers", 3), `"resourceVersion": "1"`, `"resourceVersion": ""`, 1),
		strings.Replace(scaleOf("workers", 3), "spec", "status", 1),
		scaleOf("others", 3), scaleOf("workers", -1), scaleOf("workers", 1<<32), scaleOf("workers", 3) + "{}",
	} {
		c.answer = answer
		if n, err := c.target(kubernetes.Config{Name: "workers"}).Instances(t.Context()); err == nil || !strings.Contains(err.Error(), "is not its Scale of autoscaling/v1") {
			t.Errorf("%s: %d, %v", answer, n, err)
		}
	}
	c.answer = strings.Replace(scaleOf("workers", 3), `"replicas": 3`, "", 1)
	if n, err := c.target(kubernetes.Config{Name: "workers"}).Instances(t.Context()); err != nil || n != 0 {
		t.Errorf("0 replicas, which Kubernetes leaves out: %d, %v", n, err)
	}
	c.answer = scaleOf("workers", 3)
	if err := c.target(kubernetes.Config{Name: "workers"}).Scale(t.Context(), 5); err == nil || !strings.Contains(err.Error(), "set 3 replicas instead of 5") {
		t.Errorf("an update without effect: %v", err)
	}
}

func TestFailures(t *testing.T) {
	c := newCluster(t)
	if _, err := c.target(kubernetes.Config{Name: "none"}).Instances(t.Context()); err == nil || !strings.Contains(err.Error(), "because: correct its kind, name or namespace") {
		t.Errorf("no such Deployment: %v", err)
	}
	if err := c.target(kubernetes.Config{Name: "workers"}).Scale(t.Context(), -1); err == nil {
		t.Error("-1 replicas are taken")
	}
	c.forbidden = true
	if err := c.target(kubernetes.Config{Name: "workers"}).Scale(t.Context(), 4); err == nil || !strings.HasSuffix(err.Error(), "grant it with a Role: get and update of deployments/scale in the API group apps") {
		t.Errorf("without the right: %v", err)
	}
	c.hold = make(chan struct{})
	defer close(c.hold)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.target(kubernetes.Config{Name: "workers"}).Instances(ctx); err == nil {
		t.Error("a server that does not answer answered")
	}
	for _, cfg := range []kubernetes.Config{{}, {Kind: "Pod", Name: "x"}, {Name: "../x", Kubeconfig: c.config}, {Name: "x", Namespace: "a/b", Kubeconfig: c.config}, {Name: "x", Kubeconfig: "/none"}, {Name: "x", Kubeconfig: c.config, Context: "none"}} {
		if _, err := kubernetes.New(&cfg); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}

// TestEndlessAnswer: an answer without an end is an error, not memory.
func TestEndlessAnswer(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for part := []byte(strings.Repeat(" ", 64<<10)); ; {
			if _, err := w.Write(part); err != nil {
				return
			}
		}
	}))
	defer server.Close()
	target, err := kubernetes.New(&kubernetes.Config{Name: "workers", Server: server.URL, Client: server.Client()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := target.Instances(t.Context()); err == nil || !strings.Contains(err.Error(), "larger than 1048576 bytes") {
		t.Errorf("got %v", err)
	}
}
