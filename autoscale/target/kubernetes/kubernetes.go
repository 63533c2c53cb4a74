// Package kubernetes scales a Deployment or a StatefulSet by its scale subresource.
package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/retry"

	"github.com/sluice-go/sluice/autoscale"
)

// Config names the Deployment or StatefulSet, and how to connect to the cluster.
type Config struct {
	// Kind is "Deployment" or "StatefulSet". Default: Deployment.
	Kind string
	// Name is the name of the Deployment or StatefulSet. Required.
	Name string
	// Namespace is its namespace. Default: the one in the kubeconfig, else "default".
	Namespace string
	// Kubeconfig is the path of a file, and Context one of the contexts in it.
	// Default: the usual places (KUBECONFIG, ~/.kube/config); in a pod, its service
	// account, which needs the rights to get and update the scale subresource.
	Kubeconfig, Context string
	// REST replaces Kubeconfig and Context, for programs that have a configuration of
	// their own.
	REST *rest.Config
	// Timeout bounds each request to the API server. Default: 30 s.
	Timeout time.Duration
}

// Target scales a Deployment or StatefulSet. It is safe for concurrent use.
type Target struct {
	what, name string
	scales     *scales
}

var _ autoscale.Target = (*Target)(nil)

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
	config, inherited, err := cfg.load()
	if err != nil {
		return nil, fmt.Errorf("kubernetes: %w", err)
	}
	config.Timeout = cmp.Or(cfg.Timeout, 30*time.Second)
	namespace := cmp.Or(cfg.Namespace, inherited)
	client, err := connect(config)
	if err != nil {
		return nil, fmt.Errorf("kubernetes: %w", err)
	}
	return &Target{what: kind + " " + namespace, name: cfg.Name, scales: &scales{client, namespace, strings.ToLower(kind) + "s"}}, nil
}

// load returns the client configuration, and the namespace to use if Namespace is
// empty.
func (c *Config) load() (*rest.Config, string, error) {
	if c.REST != nil {
		return rest.CopyConfig(c.REST), "default", nil
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = c.Kubeconfig
	loaded := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: c.Context})
	config, err := loaded.ClientConfig()
	if err != nil || c.Namespace != "" {
		return config, "", err
	}
	namespace, _, err := loaded.Namespace()
	return config, namespace, err
}

// Instances returns the desired number of replicas.
func (t *Target) Instances(ctx context.Context) (int, error) {
	s, err := t.scales.get(ctx, t.name)
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
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		s, err := t.scales.get(ctx, t.name)
		if err != nil || s.Spec.Replicas == int32(to) {
			return err
		}
		s.Spec.Replicas = int32(to)
		return t.scales.update(ctx, t.name, s)
	})
	if err != nil {
		return t.fail(err)
	}
	return nil
}

func (t *Target) fail(err error) error {
	if apierrors.IsForbidden(err) {
		err = fmt.Errorf("%w: grant it with a Role: get and update of %s/scale in the API group apps", err, t.scales.resource)
	}
	return fmt.Errorf("%s/%s: %w", t.what, t.name, err)
}
