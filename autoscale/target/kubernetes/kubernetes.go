// Package kubernetes scales a Deployment or a StatefulSet by its scale subresource.
//
// Its client is small: kubeconfig.go reads kubeconfigs as kubectl does, connection.go has what
// they lead to (a server, TLS, credentials), plugin.go runs credential plug-ins such as AKS's
// kubelogin, client.go sends requests, scale.go reads and writes the subresource.
package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/sluice-go/sluice/autoscale"
)

// Config names the Deployment or StatefulSet, and how to connect to the cluster.
type Config struct {
	// Kind is "Deployment" or "StatefulSet". Default: Deployment.
	Kind string
	// Name is the name of the Deployment or StatefulSet. Required.
	Name string
	// Namespace is its namespace. Default: the context's in the kubeconfig, else the pod's,
	// else "default".
	Namespace string
	// Kubeconfig is the path of a file, and Context one of the contexts in it.
	// Default: the usual places (KUBECONFIG, ~/.kube/config); in a pod, its service
	// account, which needs the rights to get and update the scale subresource.
	Kubeconfig, Context string
	// Server is the URL of an API server, and Client a client for it that authenticates
	// itself. Together they replace Kubeconfig and Context, for programs that have a
	// connection of their own; client-go's rest.HTTPClientFor returns such a client.
	Server string
	Client *http.Client
	// Timeout bounds each request to the API server. Default: 30 s.
	Timeout time.Duration
}

// Target scales a Deployment or StatefulSet. It is safe for concurrent use.
type Target struct {
	what, name string
	scales     *scales
}

var _ autoscale.Target = (*Target)(nil)

// validName matches the names of objects and namespaces.
var validName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$`)

// New returns a Deployment or StatefulSet as a target. It does not connect before the
// target is used.
func New(cfg *Config) (*Target, error) {
	kind := cmp.Or(cfg.Kind, "Deployment")
	switch {
	case cfg.Name == "":
		return nil, errors.New("kubernetes: the name of the Deployment or StatefulSet is missing")
	case kind != "Deployment" && kind != "StatefulSet":
		return nil, fmt.Errorf("kubernetes: kind %q: must be Deployment or StatefulSet", kind)
	}
	c, err := connect(cfg)
	if err != nil {
		return nil, fmt.Errorf("kubernetes: %w", err)
	}
	namespace := cmp.Or(cfg.Namespace, c.namespace, podNamespace(), "default")
	for _, name := range []string{cfg.Name, namespace} {
		if !validName.MatchString(name) {
			return nil, fmt.Errorf("kubernetes: %q is not a valid name: use lower-case letters, digits, hyphens and full stops", name)
		}
	}
	resource := strings.ToLower(kind) + "s"
	return &Target{what: kind + " " + namespace, name: cfg.Name, scales: &scales{
		&client{c, cmp.Or(cfg.Timeout, 30*time.Second)}, resource,
		c.server.JoinPath("apis/apps/v1/namespaces", namespace, resource, cfg.Name, "scale"), cfg.Name,
	}}, nil
}

// Instances returns the desired number of replicas.
func (t *Target) Instances(ctx context.Context) (int, error) {
	s, err := t.scales.get(ctx)
	if err != nil {
		return 0, t.fail(err)
	}
	return int(s.Spec.Replicas), nil
}

// Scale changes the desired number of replicas, and returns when the API server has
// accepted that; the cluster starts or stops pods afterwards.
func (t *Target) Scale(ctx context.Context, to int) error {
	if to < 0 || to > math.MaxInt32 {
		return t.fail(fmt.Errorf("%d replicas: must be 0 to 2,147,483,647", to))
	}
	if err := t.scales.set(ctx, int32(to)); err != nil {
		return t.fail(err)
	}
	return nil
}

func (t *Target) fail(err error) error { return fmt.Errorf("%s/%s: %w", t.what, t.name, err) }
