package kubernetes

import (
	"context"
	"encoding/json"
	"net/http"

	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"github.com/sluice-go/sluice/autoscale/internal/httpfetch"
)

// scale is Scale of autoscaling/v1, the scale subresource. It is written out here
// because k8s.io/api, which defines it, would compile every other type of Kubernetes
// too.
type scale struct {
	meta.TypeMeta   `json:",inline"`
	meta.ObjectMeta `json:"metadata,omitempty"`

	Spec struct {
		Replicas int32 `json:"replicas"`
	} `json:"spec"`
	Status json.RawMessage `json:"status,omitempty"`
}

// DeepCopyObject makes a scale a [runtime.Object].
func (s *scale) DeepCopyObject() runtime.Object {
	c := *s
	s.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	return &c
}

// scales reads and writes the scale subresources of one kind in one namespace. It uses
// client-go's REST client only: its typed clients need k8s.io/api.
type scales struct {
	client    rest.Interface
	namespace string
	resource  string // deployments, statefulsets
}

func connect(config *rest.Config) (rest.Interface, error) {
	known := runtime.NewScheme()
	autoscaling := schema.GroupVersion{Group: "autoscaling", Version: "v1"}
	known.AddKnownTypeWithName(autoscaling.WithKind("Scale"), &scale{})
	meta.AddToGroupVersion(known, autoscaling)
	meta.AddToGroupVersion(known, schema.GroupVersion{Version: "v1"}) // errors
	config.APIPath, config.GroupVersion = "/apis", &schema.GroupVersion{Group: "apps", Version: "v1"}
	config.NegotiatedSerializer = serializer.NewCodecFactory(known).WithoutConversion()
	config.ContentType = "application/json" // which proxies understand too
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	// Following a redirect would send the token to another server.
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c.Transport = bounded{c.Transport}
	return rest.RESTClientForConfigAndClient(config, c)
}

// bounded bounds responses, which the client reads into memory.
type bounded struct{ http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		response.Body = httpfetch.Limit(response.Body, httpfetch.MaxBody)
	}
	return response, err
}

// on sets the path of a request: the scale subresource of name.
func (s *scales) on(r *rest.Request, name string) *rest.Request {
	return r.Namespace(s.namespace).Resource(s.resource).Name(name).SubResource("scale")
}

func (s *scales) get(ctx context.Context, name string) (*scale, error) {
	found := &scale{}
	return found, s.on(s.client.Get(), name).Do(ctx).Into(found)
}

func (s *scales) update(ctx context.Context, name string, changed *scale) error {
	return s.on(s.client.Put(), name).Param("fieldManager", "sluice").Body(changed).Do(ctx).Error()
}
