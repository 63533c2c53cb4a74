package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

// scale is what is used here of Scale of autoscaling/v1, the scale subresource.
type scale struct {
	Kind       string `json:"kind"`
	APIVersion string `json:"apiVersion"`
	Metadata   struct {
		Name            string `json:"name"`
		Namespace       string `json:"namespace,omitempty"`
		UID             string `json:"uid,omitempty"`
		ResourceVersion string `json:"resourceVersion"`
	} `json:"metadata"`
	Spec *struct {
		Replicas int32 `json:"replicas"` // left out if it is 0
	} `json:"spec"`
}

// scales reads and writes one scale subresource.
type scales struct {
	client   *client
	resource string // deployments, statefulsets
	url      *url.URL
	name     string
}

// get returns what the API server has.
func (s *scales) get(ctx context.Context) (*scale, error) { return s.do(ctx, http.MethodGet, nil) }

// maxAttempts is how often an update is tried that others overtake.
const maxAttempts = 5

// set changes the replicas, if they differ. An update that another one has overtaken starts
// again from what that has left.
func (s *scales) set(ctx context.Context, to int32) error {
	for attempt := 1; ; attempt++ {
		found, err := s.get(ctx)
		if err != nil || found.Spec.Replicas == to {
			return err
		}
		found.Spec.Replicas = to
		changed, err := s.do(ctx, http.MethodPut, found)
		if refused := (*refusal)(nil); attempt < maxAttempts && errors.As(err, &refused) && refused.code == http.StatusConflict {
			if err := wait(ctx, time.Duration(attempt)*10*time.Millisecond); err != nil {
				return err
			}
			continue
		}
		if err == nil && changed.Spec.Replicas != to {
			err = fmt.Errorf("the API server set %d replicas instead of %d: look for an admission webhook that changes them", changed.Spec.Replicas, to)
		}
		return err
	}
}

func (s *scales) do(ctx context.Context, method string, body *scale) (*scale, error) {
	target, text := *s.url, []byte(nil)
	if body != nil {
		target.RawQuery = "fieldManager=sluice"
		var err error
		if text, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	answer, err := s.client.do(ctx, method, &target, text)
	if refused := (*refusal)(nil); errors.As(err, &refused) {
		switch refused.code {
		case http.StatusForbidden:
			err = fmt.Errorf("%w: grant it with a Role: get and update of %s/scale in the API group apps", err, s.resource)
		case http.StatusNotFound:
			err = fmt.Errorf("%w: correct its kind, name or namespace", err)
		}
	}
	if err != nil {
		return nil, err
	}
	var found scale
	if json.Unmarshal(answer, &found) != nil || found.Kind != "Scale" || found.APIVersion != "autoscaling/v1" ||
		found.Metadata.Name != s.name || found.Metadata.ResourceVersion == "" || found.Spec == nil || found.Spec.Replicas < 0 {
		return nil, fmt.Errorf("%s: the answer is not its Scale of autoscaling/v1: check that this is the URL of an API server", s.client.source)
	}
	return &found, nil
}
