// Package kubernetes scales a Deployment or a StatefulSet, by its scale
// subresource.
package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/retry"

	"github.com/sluice-go/sluice/autoscale"
)

// Config names what is scaled, and the cluster that it is in.
type Config struct {
	// Kind is "Deployment" or "StatefulSet". Default: Deployment.
	Kind string
	// Name is required.
	Name string
	// Namespace is where it is. Default: the one that the kubeconfig names, else
	// "default".
	Namespace string
	// Kubeconfig is a file, and Context one of the contexts in it. Default: the
	// usual places (KUBECONFIG, ~/.kube/config); in a pod, its service account.
	// That needs the rights to get and update the scale subresource.
	Kubeconfig, Context string
	// REST is how the cluster is reached, instead of a kubeconfig's way, for programs that have
	// a connection of their own. Default: Kubeconfig and Context.
	REST *rest.Config
	// Timeout is how long the API server may take to answer. Default: 30 s.
	Timeout time.Duration
}

// Target is a Deployment or StatefulSet. It is safe for concurrent use.
type Target struct {
	what, name string
	scales     *scales
}

var _ autoscale.Target = (*Target)(nil)

// New returns what a configuration names as a target. The API server is first
// asked when the target is used.
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

// load returns how the cluster is reached, and the namespace to use if none is configured.
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

// Instances is the number of replicas wanted.
func (t *Target) Instances(ctx context.Context) (int, error) {
	s, err := t.scales.get(ctx, t.name)
	if err != nil {
		return 0, t.fail(err)
	}
	return int(s.Spec.Replicas), nil
}

// Scale changes the number of replicas wanted. The cluster sees to the rest.
func (t *Target) Scale(ctx context.Context, to int) error {
	if to < 0 || to > math.MaxInt32 {
		return t.fail(fmt.Errorf("%d replicas are out of the question", to))
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

func (t *Target) fail(err error) error { return fmt.Errorf("%s/%s: %w", t.what, t.name, err) }
