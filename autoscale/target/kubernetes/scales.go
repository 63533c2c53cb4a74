package kubernetes

import (
	"context"
	"net/http"

	scaling "k8s.io/api/autoscaling/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
)

// scales is [Scales] of one kind in one namespace, over client-go's REST client
// alone: its typed clients bring along every type that Kubernetes has.
type scales struct {
	client    rest.Interface
	namespace string
	resource  string // deployments, statefulsets
}

func connect(config *rest.Config) (rest.Interface, error) {
	known := runtime.NewScheme()
	if err := scaling.AddToScheme(known); err != nil {
		return nil, err
	}
	meta.AddToGroupVersion(known, schema.GroupVersion{Version: "v1"}) // errors
	config.APIPath, config.GroupVersion = "/apis", &schema.GroupVersion{Group: "apps", Version: "v1"}
	config.NegotiatedSerializer = serializer.NewCodecFactory(known).WithoutConversion()
	config.ContentType = "application/json" // what proxies between here and there understand too
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	// A redirect would carry the token elsewhere.
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return rest.RESTClientForConfigAndClient(config, c)
}

// on points a request at the scale of one of them.
func (s *scales) on(r *rest.Request, name string) *rest.Request {
	return r.Namespace(s.namespace).Resource(s.resource).Name(name).SubResource("scale")
}

func (s *scales) GetScale(ctx context.Context, name string, _ meta.GetOptions) (*scaling.Scale, error) {
	found := &scaling.Scale{}
	return found, s.on(s.client.Get(), name).Do(ctx).Into(found)
}

func (s *scales) UpdateScale(ctx context.Context, name string, scale *scaling.Scale, options meta.UpdateOptions) (*scaling.Scale, error) {
	r := s.on(s.client.Put(), name)
	if options.FieldManager != "" {
		r = r.Param("fieldManager", options.FieldManager)
	}
	found := &scaling.Scale{}
	return found, r.Body(scale).Do(ctx).Into(found)
}
