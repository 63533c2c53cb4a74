package kubernetes

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/internal/proof/need"
)

// schema is values.schema.json, or a part of it.
type schema map[string]any

func readSchema(t *testing.T) schema {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(chart, "values.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	var s schema
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// leaves returns the values that s describes, by path, with the schema of each.
func (s schema) leaves(path string, whole schema) map[string]schema {
	if parts, ok := s["allOf"].([]any); ok {
		s = parts[0].(map[string]any)
	}
	if ref, ok := s["$ref"].(string); ok {
		s = whole["definitions"].(map[string]any)[strings.TrimPrefix(ref, "#/definitions/")].(map[string]any)
	}
	keys, ok := s["properties"].(map[string]any)
	if !ok {
		return map[string]schema{path: s}
	}
	all := make(map[string]schema)
	for key, inner := range keys {
		below := strings.TrimPrefix(path+"."+key, ".")
		if below == "global" || below == "consumer.file" { // of helm; only for a pipeline
			continue
		}
		for leaf, s := range schema(inner.(map[string]any)).leaves(below, whole) {
			all[leaf] = s
		}
	}
	return all
}

// TestWrongTypes: each value that has the wrong type is refused, in a line that names it.
func TestWrongTypes(t *testing.T) {
	need.Kubernetes(t)
	s := readSchema(t)
	wrong := map[string]any{}
	leaves := s.leaves("", s)
	for path := range leaves {
		wrong = merge(wrong, nested(path, 1.5))
	}
	_, err := tryRender(t, "wrong", wrong)
	if err == nil {
		t.Fatal("wrong values are taken")
	}
	for path := range leaves {
		place := "at '/" + strings.ReplaceAll(path, ".", "/") + "'"
		found := false
		for line := range strings.Lines(err.Error()) {
			found = found || strings.Contains(line, place+":")
		}
		if !found {
			t.Errorf("no line is about %s:\n%v", place, err)
		}
	}
}

// TestMistakes: what the chart refuses, and what it says.
func TestMistakes(t *testing.T) {
	need.Kubernetes(t)
	for _, m := range []struct{ values, wanted string }{
		{`{replicas: 2}`, `additional properties 'replicas' not allowed`},
		{`{consumer: {replica: 2}}`, `at '/consumer': 'allOf' failed`},
		{`{consumer: {file: "partitions: all"}}`, `at '/consumer': 'not' failed`},
		{`{pipelines: {flights: {file: ""}}}`, `at '/pipelines/flights/file': minLength: got 0, want 1`},
		{`{pipelines: {mail: {replicas: 2}}}`, `at '/pipelines/mail': missing property 'file'`},
		{`{pipelines: {Mail: {file: a}}}`, `'Mail' does not match pattern`},
		{`{pipelines: {flights: {replicas: two}}}`, `at '/pipelines/flights/replicas': got string, want `},
		{`{pipelines: {flights: {stopTimeoutSeconds: 0}}}`, `at '/pipelines/flights/stopTimeoutSeconds': minimum: got 0, want 1`},
		{`{pipelines: {flights: {env: [{value: x}]}}}`, `at '/pipelines/flights/env/0': missing property 'name'`},
		{`{pipelines: {flights: {podDisruptionBudget: {maxUnavailable: 0}}}}`, `at '/pipelines/flights/podDisruptionBudget/maxUnavailable'`},
		{`{log: {level: loud}}`, `at '/log/level': value must be one of 'debug', 'info', 'warn', 'error'`},

		{`{pipelines: {flights: {file: "a: [b"}}}`, `pipelines.flights.file: this is not YAML: `},
		{`{pipelines: {flights: {dashboard: {enabled: true}}}}`, `pipelines.flights.dashboard.tokenSecret.name: the dashboard needs a token: name a Secret`},
		{`{consumer: {args: [--stop-timeout=60s]}}`, `pipelines.flights.args: --stop-timeout=60s: set stopTimeoutSeconds, from which the pod's grace period follows`},
		{`{consumer: {keyVault: {name: vault}}}`, `pipelines.flights.keyVault: the vault needs a workload identity: set workloadIdentity.clientId`},
		{`{consumer: {workloadIdentity: {clientId: a}, keyVault: {name: vault}}}`, `pipelines.flights.keyVault.secrets: name the variables and their secrets in the vault`},
		{`{consumer: {resources: {limits: {memory: 1Mib}}}}`, `resources.limits.memory: 1Mib: write a number with Ki, Mi, Gi, Ti, k, M, G or T`},
		{`{fullnameOverride: ` + strings.Repeat("x", 50) + `}`, `x-flights is longer than 52 characters: choose a shorter name or fullnameOverride`},
		{`{pipelines: {autoscaler: {file: "partitions: all"}}}`, `pipelines.autoscaler: the autoscaler's objects have this name: choose another for the pipeline`},
		{`{autoscaler: {files: {flights.yaml: "a: [b"}}}`, `autoscaler.files.flights.yaml: this is not YAML: `},
		{`{autoscaler: {replicas: 2}}`, `autoscaler.replicas: 2 pods need a state that all of them reach: write state: {postgres: …} or {azure: …} into autoscaler.files.flights.yaml`},
		{`{autoscaler: {replicas: 2, files: {flights.yaml: "state: {azure: {}}", mail.yaml: "every: 1m"}}}`, `into autoscaler.files.mail.yaml`},
		{`{autoscaler: {replicas: 2, files: {flights.yaml: "state: {azure: {}}"}, args: [--part=logic]}}`, `autoscaler.replicas: with --part in autoscaler.args there must be one pod: parts take no lease`},
		{`{autoscaler: {replicas: 11}}`, `at '/autoscaler/replicas': maximum: got 11, want 10`},
		{`{keda: {file: "a: [b"}}`, `keda.file: this is not YAML: `},
		{`{keda: {file: "{}"}, pipelines: {keda: {file: "partitions: all"}}}`, `pipelines.keda: the external scaler's objects have this name: choose another for the pipeline`},
		{`{autoscaler: {files: {flights.yaml: "target: {kubernetes: {name: '${NAME}'}}"}}}`, `autoscaler.files.flights.yaml: target.kubernetes: write name, kind and namespace without variables`},
	} {
		t.Run(m.values, func(t *testing.T) {
			t.Parallel()
			_, err := tryRender(t, "wrong", base(t).merge(t, m.values))
			if err == nil {
				t.Fatal("taken")
			}
			for line := range strings.Lines(err.Error()) {
				if strings.Contains(line, m.wanted) {
					return
				}
			}
			t.Errorf("no line with %q:\n%v", m.wanted, err)
		})
	}
}

// TestOwnKeysOfPipeline: a pipeline's keys replace those of all pipelines, and only those.
func TestOwnKeysOfPipeline(t *testing.T) {
	need.Kubernetes(t)
	all := render(t, "own", base(t).merge(t, `
consumer: {replicas: 4, env: [{name: A, value: "1"}], podLabels: {a: all, b: all}}
pipelines: {orders: {replicas: 3, env: [{name: B, value: "2"}], podLabels: {b: own}, probes: {periodSeconds: 5}}}
autoscaler: {files: {flights.yaml: "target: {webhook: {url: http://example}}"}}`))
	orders, flights := find(t, all, "StatefulSet", "sluice-orders"), find(t, all, "Deployment", "sluice-flights")
	if got, want := orders.get("spec", "replicas"), 3; got != want {
		t.Errorf("replicas: %v, want %v", got, want)
	}
	if got, want := flights.get("spec", "replicas"), 4; got != want {
		t.Errorf("replicas that no autoscaler sets: %v, want %v", got, want)
	}
	spec := text([]object{orders})
	for _, wanted := range []string{`{"name":"B","value":"2"}`, `"a":"all"`, `"b":"own"`, `"periodSeconds":5`, `"failureThreshold":3`} {
		if !strings.Contains(spec, wanted) {
			t.Errorf("there is no %s in\n%s", wanted, spec)
		}
	}
	if strings.Contains(spec, `"name":"A"`) {
		t.Errorf("the list of all pipelines is in\n%s", spec)
	}
	tried := find(t, render(t, "own", base(t).merge(t, `{consumer: {replicas: 4}, autoscaler: {dryRun: true}}`)), "Deployment", "sluice-flights")
	if got, want := tried.get("spec", "replicas"), 4; got != want {
		t.Errorf("replicas that the autoscaler would set: %v, want %v", got, want)
	}
	none := find(t, render(t, "own", base(t).merge(t, `pipelines: {orders: {replicas: null}}`)), "StatefulSet", "sluice-orders")
	if got := none.get("spec", "replicas"); got != nil {
		t.Errorf("replicas: null makes %v", got)
	}
}

// TestIdentityOfPods: pods are restarted when their identity, or what they take from a key vault,
// changes. The driver writes a Secret when it is missing only, so the Secret of other variables has
// another name.
func TestIdentityOfPods(t *testing.T) {
	need.Kubernetes(t)
	release := func(change string) (pods, classes string) {
		all := render(t, "identity", base(t).merge(t, `
consumer: {workloadIdentity: {clientId: a}, keyVault: {name: vault, secrets: {A: a}}}
autoscaler: {workloadIdentity: {clientId: a}}`).merge(t, change))
		for _, o := range all {
			if o.kind() == "SecretProviderClass" {
				classes += text([]object{o})
			}
			if o.pod() != nil {
				pods += text([]object{o.pod()})
			}
		}
		return pods, classes
	}
	secret := regexp.MustCompile(`sluice-flights-key-vault-[0-9a-f]+`)
	before, _ := release(`{}`)
	for _, change := range []string{
		`consumer: {workloadIdentity: {clientId: b}}`, `consumer: {serviceAccountAnnotations: {role: b}}`,
		`autoscaler: {workloadIdentity: {tenantId: b}}`, `consumer: {keyVault: {secrets: {A: b}}}`, `consumer: {keyVault: {secrets: {B: b}}}`,
	} {
		after, classes := release(change)
		if after == before {
			t.Errorf("%s restarts no pod", change)
		}
		vault := strings.Contains(change, "keyVault")
		if name := secret.FindString(after); name != secret.FindString(classes) || vault == (name == secret.FindString(before)) {
			t.Errorf("%s: the pods read %s, the driver writes %s; before it was %s", change, name, secret.FindString(classes), secret.FindString(before))
		}
	}
}

// TestRollout: what pods need for changes of files, and for a graceful stop.
func TestRollout(t *testing.T) {
	need.Kubernetes(t)
	pods := func(v values, name string) (object, string) {
		all := render(t, "rollout", v)
		for _, o := range all {
			if o.name() == name && o.pod() != nil {
				return o, text([]object{o.pod()})
			}
		}
		t.Fatalf("there is no %s", name)
		return nil, ""
	}
	deployment, flights := pods(base(t), "sluice-flights")
	_, orders := pods(base(t), "sluice-orders")
	_, autoscaler := pods(base(t), "sluice-autoscaler")
	changed := base(t).merge(t, `{pipelines: {flights: {files: {a.avsc: "{}"}}}}`)
	if _, got := pods(changed, "sluice-flights"); got == flights {
		t.Error("a changed file does not restart the pods")
	}
	if _, got := pods(changed, "sluice-orders"); got != orders {
		t.Error("a changed file restarts the pods of another pipeline")
	}
	if _, got := pods(base(t).merge(t, `{pipelines: {orders: {replicas: 9}}}`), "sluice-autoscaler"); got != autoscaler {
		t.Error("a number of replicas restarts the autoscaler")
	}
	if _, got := pods(base(t).merge(t, `{autoscaler: {files: {more.yaml: "every: 1m"}}}`), "sluice-autoscaler"); got == autoscaler {
		t.Error("a changed file does not restart the autoscaler")
	}
	spec := deployment.pod()["spec"].(map[string]any)
	if spec["terminationGracePeriodSeconds"] != 45 || !strings.Contains(flights, `"--stop-timeout=30s"`) {
		t.Errorf("grace period %v in %s", spec["terminationGracePeriodSeconds"], flights)
	}
	if got := deployment.get("spec", "replicas"); got != nil {
		t.Errorf("the chart sets %v replicas, which the autoscaler sets", got)
	}
	if got := deployment.get("spec", "strategy", "rollingUpdate", "maxUnavailable"); got != 0 {
		t.Errorf("%v pods may be missing", got)
	}
}

// TestAutoscalerPods: what several pods of the autoscaler need, and what one with its state on a
// volume needs.
func TestAutoscalerPods(t *testing.T) {
	need.Kubernetes(t)
	one := render(t, "pods", base(t))
	two := render(t, "pods", base(t).merge(t, `{autoscaler: {replicas: 2, files: {flights.yaml: "state: {postgres: x}"}}}`))
	for _, c := range []struct {
		all      []object
		replicas int
		strategy string
		volume   bool
	}{{one, 1, "Recreate", true}, {two, 2, "RollingUpdate", false}} {
		deployment := find(t, c.all, "Deployment", "sluice-autoscaler")
		if got := deployment.get("spec", "replicas"); got != c.replicas || deployment.text("spec", "strategy", "type") != c.strategy {
			t.Errorf("%v replicas, want %d; the strategy is %v", got, c.replicas, deployment.get("spec", "strategy"))
		}
		have := text(c.all)
		if got := strings.Contains(have, `"kind":"PersistentVolumeClaim"`); got != c.volume {
			t.Errorf("%d replicas: there is a volume: %v", c.replicas, got)
		}
		budget := `"kind":"PodDisruptionBudget","metadata":{"labels":{"app.kubernetes.io/component":"autoscaler"`
		if got := strings.Contains(have, budget); got != (c.replicas > 1) {
			t.Errorf("%d replicas: there is a PodDisruptionBudget: %v", c.replicas, got)
		}
		pod := text([]object{deployment.pod()})
		for _, wanted := range []string{`"--metrics=:9090"`, `"ports":[{"containerPort":9090,"name":"metrics"}]`, `"readinessProbe":{"failureThreshold":3,"httpGet":{"path":"/readyz","port":"metrics"}`} {
			if !strings.Contains(pod, wanted) {
				t.Errorf("there is no %s in\n%s", wanted, pod)
			}
		}
	}
	monitored := render(t, "pods", base(t).merge(t, `{serviceMonitor: {enabled: true}}`))
	service, monitor := find(t, monitored, "Service", "sluice-autoscaler"), find(t, monitored, "ServiceMonitor", "sluice-autoscaler")
	labels := service.get("metadata", "labels").(map[string]any)
	for key, value := range monitor.get("spec", "selector", "matchLabels").(map[string]any) {
		if labels[key] != value {
			t.Errorf("the ServiceMonitor selects %s: %v, and the Service has %v", key, value, labels[key])
		}
	}
}

// TestKEDAPods: the Service that KEDA calls selects the pods, which a NetworkPolicy lets in.
func TestKEDAPods(t *testing.T) {
	need.Kubernetes(t)
	all := render(t, "pods", base(t).merge(t, kedaOn+"\nnetworkPolicy: {enabled: true}"))
	service, deployment := find(t, all, "Service", "sluice-keda"), find(t, all, "Deployment", "sluice-keda")
	labels := deployment.get("spec", "template", "metadata", "labels").(map[string]any)
	for key, value := range service.get("spec", "selector").(map[string]any) {
		if labels[key] != value {
			t.Errorf("the Service selects %s: %v, and the pods have %v", key, value, labels[key])
		}
	}
	have := text(all)
	for _, wanted := range []string{`{"name":"grpc","port":6000,"targetPort":"keda"}`, `{"containerPort":6000,"name":"keda"}`, `"livenessProbe":{"grpc":{"port":6000}}`,
		`{"port":6000,"protocol":"TCP"}`, `"args":["autoscale","keda","/etc/sluice-keda/lags.yaml","--listen=:6000",`} {
		if !strings.Contains(have, wanted) {
			t.Errorf("there is no %s in\n%s", wanted, have)
		}
	}
	pods := func(more string) string {
		return text([]object{find(t, render(t, "pods", base(t).merge(t, kedaOn).merge(t, more)), "Deployment", "sluice-keda").pod()})
	}
	if before := pods(""); pods("keda: {file: 'a: {}'}") == before || pods("pipelines: {flights: {file: 'partitions: all'}}") == before {
		t.Error("a changed file does not restart the pods")
	}
}
