package kubernetes

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	target "github.com/sluice-go/sluice/autoscale/target/kubernetes"
	"github.com/sluice-go/sluice/internal/proof/need"
)

// account returns the names of a ServiceAccount, as users and groups.
func account(namespace, name string) []string {
	return []string{"system:serviceaccount:" + namespace + ":" + name, "system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"}
}

// installed applies a release whose autoscaler scales the Deployment of flights and the
// StatefulSet of orders.
func installed(t *testing.T, namespace string) []object {
	t.Helper()
	server.namespace(t, namespace)
	all := render(t, namespace, base(t).merge(t, `{autoscaler: {files: {orders.yaml: "target: {kubernetes: {kind: StatefulSet, name: sluice-orders}}"}}}`))
	for _, o := range all {
		server.apply(t, o, "")
	}
	return all
}

// replicas returns the desired number of pods.
func replicas(t *testing.T, namespace, collection, name string) any {
	t.Helper()
	code, answer := server.do("GET", "/apis/apps/v1/namespaces/"+namespace+"/"+collection+"/"+name, "", nil)
	var o object
	if err := json.Unmarshal(answer, &o); err != nil || code != http.StatusOK {
		t.Fatalf("%d %s", code, answer)
	}
	return o.get("spec", "replicas")
}

// TestScale: the target scales both kinds with the rights that the chart grants. Each of these
// rights is needed: without it the target fails with an error that names it.
func TestScale(t *testing.T) {
	need.Kubernetes(t)
	const namespace = "scale"
	role := find(t, installed(t, namespace), "Role", "sluice-autoscaler")
	kubeconfig := server.kubeconfig(t, account(namespace, "sluice-autoscaler")...)
	scale := func(kind, name string, to int) error {
		k, err := target.New(&target.Config{Kind: kind, Name: name, Namespace: namespace, Kubeconfig: kubeconfig})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := k.Instances(t.Context()); err != nil {
			return err
		}
		return k.Scale(t.Context(), to)
	}
	kinds := []struct{ kind, collection, name string }{{"Deployment", "deployments", "sluice-flights"}, {"StatefulSet", "statefulsets", "sluice-orders"}}
	for n, k := range kinds {
		if err := scale(k.kind, k.name, 5+n); err != nil || replicas(t, namespace, k.collection, k.name) != float64(5+n) {
			t.Errorf("%s: %v, %v replicas", k.kind, err, replicas(t, namespace, k.collection, k.name))
		}
	}
	if err := scale("Deployment", "sluice-autoscaler", 2); err == nil {
		t.Error("a Deployment is scaled that no file names")
	}
	rules := role["rules"].([]any)
	if len(rules) != 2 {
		t.Fatalf("%d rules", len(rules))
	}
	for _, rule := range rules {
		rule := rule.(map[string]any)
		resource := rule["resources"].([]any)[0].(string)
		k := kinds[slices.IndexFunc(kinds, func(k struct{ kind, collection, name string }) bool { return k.collection+"/scale" == resource })]
		verbs := rule["verbs"].([]any)
		// grant changes the Role, and waits until the API server knows that: for a moment it goes
		// by the Role before.
		grant := func(verbs []any) {
			rule["verbs"] = verbs
			server.apply(t, role, "")
			wanted := fmt.Sprintf("%v [apps] [%s] [%s]", verbs, resource, k.name)
			if err := eventually(func() error {
				if got := rights(t, namespace, "sluice-autoscaler"); !slices.Contains(got, wanted) {
					return fmt.Errorf("the autoscaler's account may do %v, want %s", got, wanted)
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		for i, verb := range verbs {
			grant(slices.Delete(slices.Clone(verbs), i, i+1))
			refused := fmt.Sprintf(`cannot %s resource "%s"`, verb, resource)
			err := scale(k.kind, k.name, 9)
			for _, wanted := range []string{k.kind + " " + namespace + "/" + k.name, refused, "grant it with a Role: get and update of " + resource} {
				if err == nil || !strings.Contains(err.Error(), wanted) {
					t.Errorf("without %s of %s: got %v, want %q", verb, resource, err, wanted)
				}
			}
			if got := replicas(t, namespace, k.collection, k.name); got == float64(9) {
				t.Errorf("without %s of %s it was scaled", verb, resource)
			}
		}
		grant(verbs)
		if err := scale(k.kind, k.name, 3); err != nil {
			t.Errorf("with all rights again: %v", err)
		}
	}
}

// eventually calls fn until it has no error: what is new takes the API server a moment. It returns
// the last error after a minute.
func eventually(fn func() error) error {
	for end := time.Now().Add(time.Minute); ; {
		if err := fn(); err == nil || time.Now().After(end) {
			return err
		}
	}
}

// TestRights: the autoscaler's account may do what the target needs, and nothing else; the
// accounts of pipelines may do nothing.
func TestRights(t *testing.T) {
	need.Kubernetes(t)
	const namespace = "rights"
	all := installed(t, namespace)
	nobody := rights(t, namespace, "nobody")
	for _, name := range []string{"sluice-flights", "sluice-orders"} {
		if got := rights(t, namespace, name); !slices.Equal(got, nobody) {
			t.Errorf("the account %s may do %v", name, got)
		}
	}
	wanted := []string{
		`[get update] [apps] [deployments/scale] [sluice-flights]`,
		`[get update] [apps] [statefulsets/scale] [sluice-orders]`,
	}
	got := slices.DeleteFunc(rights(t, namespace, "sluice-autoscaler"), func(r string) bool { return slices.Contains(nobody, r) })
	if !slices.Equal(got, wanted) {
		t.Errorf("the autoscaler's account may do %v, want %v", got, wanted)
	}
	for _, request := range []struct{ method, path string }{
		{"GET", "/apis/apps/v1/namespaces/rights/deployments/sluice-flights"},
		{"GET", "/apis/apps/v1/namespaces/rights/deployments"},
		{"GET", "/apis/apps/v1/namespaces/rights/deployments/sluice-autoscaler/scale"},
		{"PATCH", "/apis/apps/v1/namespaces/rights/deployments/sluice-flights/scale"},
		{"DELETE", "/apis/apps/v1/namespaces/rights/deployments/sluice-flights"},
		{"GET", "/apis/apps/v1/namespaces/default/deployments/sluice-flights/scale"},
		{"GET", "/api/v1/namespaces/rights/secrets"},
		{"GET", "/api/v1/namespaces/rights/pods"},
		{"POST", "/api/v1/namespaces/rights/pods"},
	} {
		if code, answer := server.do(request.method, request.path, "application/merge-patch+json", []byte("{}"), account(namespace, "sluice-autoscaler")...); code != http.StatusForbidden {
			t.Errorf("%s %s: %d %s", request.method, request.path, code, answer)
		}
	}
	for _, o := range all {
		if pod := o.pod(); pod != nil {
			if got, want := pod.get("spec", "automountServiceAccountToken"), o.name() == "sluice-autoscaler"; got != want {
				t.Errorf("%s: the token is mounted: %v", o.name(), got)
			}
		}
	}
}

// rights returns what an account may do in a namespace, sorted.
func rights(t *testing.T, namespace, name string) []string {
	t.Helper()
	body := fmt.Sprintf(`{"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": %q}}`, namespace)
	code, answer := server.do("POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", "", []byte(body), account(namespace, name)...)
	var review struct {
		Status struct {
			ResourceRules []struct{ Verbs, APIGroups, Resources, ResourceNames []string }
		}
	}
	if err := json.Unmarshal(answer, &review); err != nil || code != http.StatusCreated {
		t.Fatalf("%d %s", code, answer)
	}
	var all []string
	for _, r := range review.Status.ResourceRules {
		all = append(all, fmt.Sprint(r.Verbs, r.APIGroups, r.Resources, r.ResourceNames))
	}
	slices.Sort(all)
	return all
}
