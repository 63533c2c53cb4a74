package kubernetes_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

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
	url       string
	ca        []byte
	forbidden bool          // nothing is allowed
	hold      chan struct{} // if set, requests wait for its end
}

const deployment, stateful = "/apis/apps/v1/namespaces/shop/deployments/workers", "/apis/apps/v1/namespaces/shop/statefulsets/readers"

func newCluster(t *testing.T) *cluster {
	c := &cluster{T: t, replicas: map[string]int32{deployment: 2, stateful: 3}, version: 1}
	server := httptest.NewTLSServer(c)
	t.Cleanup(server.Close)
	c.url, c.ca = server.URL, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	c.config = filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "here",
		"clusters": [{"name": "c", "cluster": {"server": %q, "certificate-authority-data": %q}}], "users": [{"name": "u", "user": {"token": "hunter2"}}],
		"contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "shop"}}]}`, c.url, base64.StdEncoding.EncodeToString(c.ca))
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
	case r.Header.Get("Authorization") != "Bearer hunter2":
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
	cfg.Kubeconfig = c.config
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

func TestConnectionOfOwn(t *testing.T) {
	c := newCluster(t)
	own := &rest.Config{Host: c.url, BearerToken: "hunter2", TLSClientConfig: rest.TLSClientConfig{CAData: c.ca}}
	target, err := kubernetes.New(&kubernetes.Config{Name: "workers", Namespace: "shop", REST: own})
	if err != nil {
		t.Fatal(err)
	}
	if err := target.Scale(t.Context(), 4); err != nil || c.replicas[deployment] != 4 {
		t.Errorf("%v; %d replicas", err, c.replicas[deployment])
	}
	if own.Timeout != 0 || own.GroupVersion != nil {
		t.Errorf("the caller's configuration was changed: %v", own)
	}
}

func TestFailures(t *testing.T) {
	c := newCluster(t)
	if _, err := c.target(kubernetes.Config{Name: "none"}).Instances(t.Context()); err == nil || !strings.Contains(err.Error(), "Deployment shop/none: because") {
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
	for _, cfg := range []kubernetes.Config{{}, {Kind: "Pod", Name: "x"}, {Name: "x", Kubeconfig: "/none"}, {Name: "x", Kubeconfig: c.config, Context: "none"}} {
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
	target, err := kubernetes.New(&kubernetes.Config{Name: "workers", REST: &rest.Config{Host: server.URL}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := target.Instances(t.Context()); err == nil || !strings.Contains(err.Error(), "larger than 1048576 bytes") {
		t.Errorf("got %v", err)
	}
}
