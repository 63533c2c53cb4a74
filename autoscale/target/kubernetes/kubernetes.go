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

	scaling "k8s.io/api/autoscaling/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	// Timeout is how long the API server may take to answer. Default: 30 s.
	Timeout time.Duration
}

// Target is a Deployment or StatefulSet. It is safe for concurrent use.
type Target struct {
	what, name string
	scales     Scales
}

// Scales is the side of client-go's clients for Deployments and StatefulSets
// that is needed here.
type Scales interface {
	GetScale(ctx context.Context, name string, options meta.GetOptions) (*scaling.Scale, error)
	UpdateScale(ctx context.Context, name string, scale *scaling.Scale, options meta.UpdateOptions) (*scaling.Scale, error)
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
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = cfg.Kubeconfig
	loaded := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: cfg.Context})
	config, err := loaded.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("kubernetes: %w", err)
	}
	config.Timeout = cmp.Or(cfg.Timeout, 30*time.Second)
	namespace := cfg.Namespace
	if namespace == "" {
		if namespace, _, err = loaded.Namespace(); err != nil {
			return nil, fmt.Errorf("kubernetes: %w", err)
		}
	}
	client, err := connect(config)
	if err != nil {
		return nil, fmt.Errorf("kubernetes: %w", err)
	}
	return Of(&scales{client, namespace, strings.ToLower(kind) + "s"}, kind+" "+namespace, cfg.Name), nil
}

// Of returns what a client of client-go scales under a name as a target; what,
// such as "Deployment shop", goes before the name in errors.
func Of(scales Scales, what, name string) *Target {
	return &Target{what: what, name: name, scales: scales}
}

// Instances is the number of replicas wanted.
func (t *Target) Instances(ctx context.Context) (int, error) {
	s, err := t.scales.GetScale(ctx, t.name, meta.GetOptions{})
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
		s, err := t.scales.GetScale(ctx, t.name, meta.GetOptions{})
		if err != nil || s.Spec.Replicas == int32(to) {
			return err
		}
		s.Spec.Replicas = int32(to)
		_, err = t.scales.UpdateScale(ctx, t.name, s, meta.UpdateOptions{FieldManager: "sluice"})
		return err
	})
	if err != nil {
		return t.fail(err)
	}
	return nil
}

func (t *Target) fail(err error) error { return fmt.Errorf("%s/%s: %w", t.what, t.name, err) }
