package kubernetes

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/sluice-go/sluice/internal/proof/need"
)

// base is a release with two pipelines, one in a Deployment and one in a StatefulSet, and an
// autoscaler of the first.
func base(t *testing.T) values {
	t.Helper()
	balanced, err := os.ReadFile(filepath.Join(root(), "deploy/kustomize/balanced/flights.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	fixed, err := os.ReadFile(filepath.Join(root(), "deploy/kustomize/fixed/flights.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	autoscale, err := os.ReadFile(filepath.Join(root(), "deploy/kustomize/autoscaled/autoscale.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return values{
		"pipelines":  map[string]any{"flights": map[string]any{"file": string(balanced)}, "orders": map[string]any{"file": string(fixed)}},
		"autoscaler": map[string]any{"files": map[string]any{"flights.yaml": string(autoscale)}},
	}
}

// definitions makes the kinds known that the chart uses and Kubernetes itself does not have.
var definitions = sync.OnceFunc(func() {
	for _, path := range []string{program("servicemonitors.yaml"), "testdata/secretproviderclass.yaml"} {
		text, err := os.ReadFile(path)
		if err != nil {
			panic(fmt.Sprintf("%v: run scripts/install-kubernetes", err))
		}
		var crd map[string]any
		if err := yaml.Unmarshal(text, &crd); err != nil {
			panic(err)
		}
		body, _ := json.Marshal(crd)
		if code, answer := server.do("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "", body); code != http.StatusCreated {
			panic(fmt.Sprintf("%s: %s", path, message(answer)))
		}
		if err := served(crd, "v1"); err != nil {
			panic(err)
		}
	}
})

// served waits until the API server serves the kind that a definition defines.
func served(definition map[string]any, version string) error {
	spec := definition["spec"].(map[string]any)
	path := fmt.Sprintf("/apis/%s/%s/%s", spec["group"], version, spec["names"].(map[string]any)["plural"])
	return eventually(func() error {
		if code, answer := server.do("GET", path, "", nil); code != http.StatusOK {
			return fmt.Errorf("%s: %d %s", path, code, message(answer))
		}
		return nil
	})
}

// kedaOn turns the external scaler for KEDA on.
const kedaOn = "keda: {file: '{}'}"

// Each value of the chart, an example, and what the objects then have which they do not have
// with the default; with ! in front, what they no longer have. Objects are JSON with sorted keys.
var examples = []struct{ path, value, wanted, overrides string }{
	{"fullnameOverride", `events`, `"name":"events-orders"`, ""},
	{"labels", `{team: data}`, `"team":"data"`, ""},
	{"image.repository", `registry.example/sluice`, `"image":"registry.example/sluice:0.0.0"`, ""},
	{"image.tag", `v1.2.3`, `"image":"sluice:v1.2.3"`, ""},
	{"image.digest", `sha256:` + strings.Repeat("0a", 32), `"image":"sluice@sha256:0a0a`, ""},
	{"image.pullPolicy", `Always`, `"imagePullPolicy":"Always"`, ""},
	{"imagePullSecrets", `[{name: registry}]`, `"imagePullSecrets":[{"name":"registry"}]`, ""},
	{"log.format", `text`, `"--log-format=text"`, ""},
	{"log.level", `debug`, `"--log-level=debug"`, ""},
	{"pipelines", `{mail: {file: "partitions: all"}}`, `"mail.yaml":"partitions: all"`, ""},

	{"consumer.kind", `StatefulSet`, `"serviceName":"sluice-flights"`, ""},
	{"consumer.replicas", `7`, `"replicas":7`, ""},
	{"consumer.stage", `clean`, `"--stage=clean"`, ""},
	{"consumer.stopTimeoutSeconds", `50`, `"terminationGracePeriodSeconds":65`, ""},
	{"consumer.minReadySeconds", `33`, `"minReadySeconds":33`, ""},
	{"consumer.env", `[{name: PARTITIONS, value: balanced}]`, `{"name":"PARTITIONS","value":"balanced"}`, ""},
	{"consumer.envFrom", `[{secretRef: {name: shop}}]`, `"envFrom":[{"secretRef":{"name":"shop"}}]`, ""},
	{"consumer.files", `{flight.avsc: '{"type": "int"}'}`, `"flight.avsc":"{\"type\": \"int\"}"`, ""},
	{"consumer.args", `[--history=history.jsonl]`, `"--history=history.jsonl"`, ""},
	{"consumer.resources.requests", `{cpu: 2, ephemeral-storage: 1Gi}`, `"requests":{"cpu":2,"ephemeral-storage":"1Gi"`, ""},
	{"consumer.resources.limits", `{memory: 1Gi}`, `{"name":"GOMEMLIMIT","value":"921MiB"}`, ""},
	{"consumer.dataSize", `1Gi`, `"emptyDir":{"sizeLimit":"1Gi"}`, ""},
	{"consumer.serviceAccountName", `reader`, `"serviceAccountName":"reader"`, ""},
	{"consumer.serviceAccountAnnotations", `{example.com/role: reader}`, `"example.com/role":"reader"`, ""},
	{"consumer.workloadIdentity.clientId", `1b4e28ba`, `"azure.workload.identity/client-id":"1b4e28ba"`, ""},
	{"consumer.workloadIdentity.tenantId", `2fa1`, `"azure.workload.identity/tenant-id":"2fa1"`, ""},
	{"consumer.keyVault.name", `vault`, `"volumeAttributes":{"secretProviderClass":"sluice-flights"}`, "consumer: {workloadIdentity: {clientId: 1b4e28ba}, keyVault: {secrets: {A: a}}}"},
	{"consumer.keyVault.tenantId", `2fa1`, `"tenantId":"2fa1"`, "consumer: {workloadIdentity: {clientId: 1b4e28ba}, keyVault: {name: vault, secrets: {A: a}}}"},
	{"consumer.keyVault.secrets", `{DATABASE_URL: flights-url}`, `{"name":"DATABASE_URL","valueFrom":{"secretKeyRef":{"key":"DATABASE_URL","name":"sluice-flights-key-vault-`,
		"consumer: {workloadIdentity: {clientId: 1b4e28ba}, keyVault: {name: vault, secrets: {A: a}}}"},
	{"consumer.dashboard.enabled", `true`, `"--web=:8443","--web-token-env=SLUICE_WEB_TOKEN"`, "consumer: {dashboard: {tokenSecret: {name: web}}}"},
	{"consumer.dashboard.tokenSecret.name", `web`, `"secretKeyRef":{"key":"token","name":"web"}`, "consumer: {dashboard: {enabled: true, tokenSecret: {name: other}}}"},
	{"consumer.dashboard.tokenSecret.key", `secret`, `"secretKeyRef":{"key":"secret","name":"web"}`, "consumer: {dashboard: {enabled: true, tokenSecret: {name: web}}}"},
	{"consumer.dashboard.tlsSecret", `web-tls`, `"secret":{"secretName":"web-tls"}`, "consumer: {dashboard: {enabled: true, tokenSecret: {name: web}}}"},
	{"consumer.spreadOver", `[example.com/rack]`, `"topologyKey":"example.com/rack"`, ""},
	{"consumer.updateStrategy", `{type: RollingUpdate, rollingUpdate: {maxUnavailable: 3}}`, `{"rollingUpdate":{"maxUnavailable":3}`, ""},
	{"consumer.podDisruptionBudget.enabled", `false`, `!"kind":"PodDisruptionBudget"`, ""},
	{"consumer.podDisruptionBudget.maxUnavailable", `25%`, `"maxUnavailable":"25%"`, ""},
	{"consumer.probes.startupSeconds", `31`, `"startupProbe":{"failureThreshold":16`, ""},
	{"consumer.probes.periodSeconds", `17`, `"periodSeconds":17`, ""},
	{"consumer.probes.timeoutSeconds", `9`, `"timeoutSeconds":9`, ""},
	{"consumer.probes.failureThreshold", `8`, `"livenessProbe":{"failureThreshold":8`, ""},
	{"consumer.podLabels", `{tier: stream}`, `"tier":"stream"`, ""},
	{"consumer.podAnnotations", `{example.com/note: "1"}`, `"example.com/note":"1"`, ""},
	{"consumer.volumes", `[{name: ca, secret: {secretName: ca}}]`, `{"name":"ca","secret":{"secretName":"ca"}}`, "consumer: {volumeMounts: []}"},
	{"consumer.volumeMounts", `[{name: ca, mountPath: /ca}]`, `{"mountPath":"/ca","name":"ca"}`, "consumer: {volumes: [{name: ca, emptyDir: {}}]}"},
	{"consumer.nodeSelector", `{pool: stream}`, `"nodeSelector":{"pool":"stream"}`, ""},
	{"consumer.tolerations", `[{key: spot, operator: Exists}]`, `"tolerations":[{"key":"spot","operator":"Exists"}]`, ""},
	{"consumer.affinity", `{nodeAffinity: {}}`, `"affinity":{"nodeAffinity":{}}`, ""},
	{"consumer.priorityClassName", `system-cluster-critical`, `"priorityClassName":"system-cluster-critical"`, ""},

	{"autoscaler.files", `{mail.yaml: "target: {kubernetes: {kind: StatefulSet, name: mail, namespace: mail}}"}`, `"resourceNames":["mail"],"resources":["statefulsets/scale"]`, ""},
	{"autoscaler.replicas", `2`, `"rollingUpdate":{"maxSurge":0,"maxUnavailable":1}`, "autoscaler: {files: {flights.yaml: 'state: {postgres: x}'}}"},
	{"autoscaler.dryRun", `true`, `"verbs":["get"]`, ""},
	{"autoscaler.env", `[{name: A, value: b}]`, `{"name":"A","value":"b"}`, ""},
	{"autoscaler.envFrom", `[{secretRef: {name: shop}}]`, `"envFrom":[{"secretRef":{"name":"shop"}}]`, ""},
	{"autoscaler.args", `[--part=collector]`, `"--part=collector"`, ""},
	{"autoscaler.resources.requests", `{cpu: 3}`, `"requests":{"cpu":3`, ""},
	{"autoscaler.resources.limits", `{memory: 100M}`, `"value":"85MiB"`, ""},
	{"autoscaler.state.persistent", `false`, `{"emptyDir":{},"name":"data"}`, ""},
	{"autoscaler.state.size", `2Gi`, `"requests":{"storage":"2Gi"}`, ""},
	{"autoscaler.state.storageClassName", `fast`, `"storageClassName":"fast"`, ""},
	{"autoscaler.state.existingClaim", `mine`, `"persistentVolumeClaim":{"claimName":"mine"}`, ""},
	{"autoscaler.probes.startupSeconds", `31`, `"startupProbe":{"failureThreshold":16`, ""},
	{"autoscaler.probes.periodSeconds", `17`, `"periodSeconds":17`, ""},
	{"autoscaler.probes.timeoutSeconds", `9`, `"timeoutSeconds":9`, ""},
	{"autoscaler.probes.failureThreshold", `8`, `"livenessProbe":{"failureThreshold":8`, ""},
	{"autoscaler.spreadOver", `[example.com/rack]`, `"topologyKey":"example.com/rack"`, ""},
	{"autoscaler.serviceAccountName", `scaler`, `"serviceAccountName":"scaler"`, ""},
	{"autoscaler.serviceAccountAnnotations", `{example.com/role: scaler}`, `"example.com/role":"scaler"`, ""},
	{"autoscaler.workloadIdentity.clientId", `1b4e28ba`, `"azure.workload.identity/client-id":"1b4e28ba"`, ""},
	{"autoscaler.workloadIdentity.tenantId", `2fa1`, `"azure.workload.identity/tenant-id":"2fa1"`, ""},
	{"autoscaler.podLabels", `{tier: scaler}`, `"tier":"scaler"`, ""},
	{"autoscaler.podAnnotations", `{example.com/note: "2"}`, `"example.com/note":"2"`, ""},
	{"autoscaler.volumes", `[{name: ca, secret: {secretName: ca}}]`, `{"name":"ca","secret":{"secretName":"ca"}}`, ""},
	{"autoscaler.volumeMounts", `[{name: ca, mountPath: /ca}]`, `{"mountPath":"/ca","name":"ca"}`, "autoscaler: {volumes: [{name: ca, emptyDir: {}}]}"},
	{"autoscaler.nodeSelector", `{pool: system}`, `"nodeSelector":{"pool":"system"}`, ""},
	{"autoscaler.tolerations", `[{key: spot, operator: Exists}]`, `"tolerations":[{"key":"spot","operator":"Exists"}]`, ""},
	{"autoscaler.affinity", `{nodeAffinity: {}}`, `"affinity":{"nodeAffinity":{}}`, ""},
	{"autoscaler.priorityClassName", `system-cluster-critical`, `"priorityClassName":"system-cluster-critical"`, ""},

	{"keda.file", `"flights: {lag: {pipeline: /etc/sluice/flights.yaml}, target: 7}"`, `"sluice-keda"`, ""},
	{"keda.replicas", `1`, `!"kind":"PodDisruptionBudget"`, kedaOn + "\nconsumer: {podDisruptionBudget: {enabled: false}}"},
	{"keda.tlsSecret", `keda-tls`, `"livenessProbe":{"tcpSocket":{"port":"keda"}}`, kedaOn},
	{"keda.env", `[{name: A, value: b}]`, `{"name":"A","value":"b"}`, kedaOn},
	{"keda.envFrom", `[{secretRef: {name: shop}}]`, `"envFrom":[{"secretRef":{"name":"shop"}}]`, kedaOn},
	{"keda.args", `[--tls-client-ca=/etc/sluice-tls/ca.crt]`, `"--tls-client-ca=/etc/sluice-tls/ca.crt"`, kedaOn},
	{"keda.resources.requests", `{cpu: 3}`, `"requests":{"cpu":3`, kedaOn},
	{"keda.resources.limits", `{memory: 100M}`, `"value":"85MiB"`, kedaOn},
	{"keda.spreadOver", `[example.com/rack]`, `"topologyKey":"example.com/rack"`, kedaOn},
	{"keda.serviceAccountName", `scaler`, `"serviceAccountName":"scaler"`, kedaOn},
	{"keda.serviceAccountAnnotations", `{example.com/role: scaler}`, `"example.com/role":"scaler"`, kedaOn},
	{"keda.workloadIdentity.clientId", `1b4e28ba`, `"azure.workload.identity/client-id":"1b4e28ba"`, kedaOn},
	{"keda.workloadIdentity.tenantId", `2fa1`, `"azure.workload.identity/tenant-id":"2fa1"`, kedaOn},
	{"keda.podLabels", `{tier: scaler}`, `"tier":"scaler"`, kedaOn},
	{"keda.podAnnotations", `{example.com/note: "3"}`, `"example.com/note":"3"`, kedaOn},
	{"keda.volumes", `[{name: ca, secret: {secretName: ca}}]`, `{"name":"ca","secret":{"secretName":"ca"}}`, kedaOn},
	{"keda.volumeMounts", `[{name: ca, mountPath: /ca}]`, `{"mountPath":"/ca","name":"ca"}`, "keda: {file: '{}', volumes: [{name: ca, emptyDir: {}}]}"},
	{"keda.nodeSelector", `{pool: system}`, `"nodeSelector":{"pool":"system"}`, kedaOn},
	{"keda.tolerations", `[{key: spot, operator: Exists}]`, `"tolerations":[{"key":"spot","operator":"Exists"}]`, kedaOn},
	{"keda.affinity", `{nodeAffinity: {}}`, `"affinity":{"nodeAffinity":{}}`, kedaOn},
	{"keda.priorityClassName", `system-cluster-critical`, `"priorityClassName":"system-cluster-critical"`, kedaOn},

	{"serviceMonitor.enabled", `true`, `"kind":"ServiceMonitor"`, ""},
	{"serviceMonitor.interval", `15s`, `"interval":"15s"`, "serviceMonitor: {enabled: true}"},
	{"serviceMonitor.labels", `{release: prometheus}`, `"release":"prometheus"`, "serviceMonitor: {enabled: true}"},
	{"networkPolicy.enabled", `true`, `"kind":"NetworkPolicy"`, ""},
	{"networkPolicy.from", `[{namespaceSelector: {matchLabels: {a: b}}}]`, `"from":[{"namespaceSelector":{"matchLabels":{"a":"b"}}}]`, "networkPolicy: {enabled: true}"},
	{"networkPolicy.to", `[{ipBlock: {cidr: 10.1.0.0/16}}]`, `"to":[{"ipBlock":{"cidr":"10.1.0.0/16"}}]`, "networkPolicy: {enabled: true}"},
	{"networkPolicy.ports", `[6432]`, `"port":6432`, "networkPolicy: {enabled: true}"},
	{"networkPolicy.egress", `[{to: [{podSelector: {}}]}]`, `{"to":[{"podSelector":{}}]}`, "networkPolicy: {enabled: true}"},
}

// TestValues: each value changes what it says. A release without it can be upgraded to one
// with it. The API server takes every object, and the pods too, where the Pod Security
// Standard "restricted" is enforced.
func TestValues(t *testing.T) {
	need.Kubernetes(t)
	definitions()
	namespace := server.namespace(t, "values")
	for _, o := range render(t, namespace, base(t)) {
		server.apply(t, o, "")
	}
	for _, e := range examples {
		t.Run(e.path, func(t *testing.T) {
			t.Parallel()
			without := base(t).merge(t, e.overrides)
			var value any
			if err := yaml.Unmarshal([]byte(e.value), &value); err != nil {
				t.Fatal(err)
			}
			all := render(t, namespace, merge(without, nested(e.path, value)))
			got, before := text(all), text(render(t, namespace, without))
			wanted, removed := strings.CutPrefix(e.wanted, "!")
			if strings.Contains(got, wanted) == removed || strings.Contains(before, wanted) != removed {
				t.Errorf("%s: %s makes\n%s\nwithout it\n%s", e.path, e.value, got, before)
			}
			for _, o := range all {
				if o.kind() == "PersistentVolumeClaim" && (e.path == "autoscaler.state.size" || e.path == "autoscaler.state.storageClassName") {
					o["metadata"].(map[string]any)["name"] = "new" // what it asks for can't be changed before a volume is bound
				}
				if o.text("metadata", "namespace") != namespace {
					server.namespace(t, o.text("metadata", "namespace"))
				}
				server.apply(t, o, "&dryRun=All")
				if pod := o.pod(); pod != nil {
					server.apply(t, pod, "&dryRun=All")
				}
			}
		})
	}
}

// TestEachValueHasAnExample: values.yaml, values.schema.json and the examples have the same
// values.
func TestEachValueHasAnExample(t *testing.T) {
	need.Kubernetes(t)
	var inExamples, inSchema, inFile []string
	for _, e := range examples {
		inExamples = append(inExamples, e.path)
	}
	schema := readSchema(t)
	for path := range schema.leaves("", schema) {
		inSchema = append(inSchema, path)
	}
	for _, row := range documented(t) {
		inFile = append(inFile, row.path)
	}
	for _, all := range [][]string{inExamples, inSchema, inFile} {
		slices.Sort(all)
	}
	if !slices.Equal(inExamples, inSchema) || !slices.Equal(inExamples, inFile) {
		t.Errorf("the examples are of\n%v\nvalues.schema.json has\n%v\nvalues.yaml has\n%v", inExamples, inSchema, inFile)
	}
}

// TestPodSecurity: the API server refuses pods that may do more, so that TestValues has shown
// something.
func TestPodSecurity(t *testing.T) {
	need.Kubernetes(t)
	namespace := server.namespace(t, "restricted")
	pod := find(t, render(t, namespace, base(t)), "Deployment", "sluice-flights").pod()
	server.apply(t, pod, "&dryRun=All")
	for _, remove := range [][]string{{"runAsNonRoot"}, {"seccompProfile"}} {
		spec := maps.Clone(pod["spec"].(map[string]any))
		security := maps.Clone(spec["securityContext"].(map[string]any))
		delete(security, remove[0])
		spec["securityContext"] = security
		weak := maps.Clone(pod)
		weak["spec"] = spec
		if code, answer := server.tryApply(weak, "&dryRun=All"); code != http.StatusForbidden || !strings.Contains(message(answer), "restricted") {
			t.Errorf("without %s: %d %s", remove[0], code, message(answer))
		}
	}
	container := pod.get("spec", "containers").([]any)[0].(map[string]any)
	if security := fmt.Sprint(container["securityContext"]); security != "map[allowPrivilegeEscalation:false capabilities:map[drop:[ALL]] readOnlyRootFilesystem:true]" {
		t.Errorf("the container has %s", security)
	}
}

// TestStrict: the API server refuses a field that a kind does not have.
func TestStrict(t *testing.T) {
	need.Kubernetes(t)
	namespace := server.namespace(t, "strict")
	o := find(t, render(t, namespace, base(t)), "Deployment", "sluice-flights")
	o["spec"].(map[string]any)["replica"] = 3
	if code, answer := server.tryApply(o, "&dryRun=All"); code == http.StatusOK || !strings.Contains(message(answer), "replica") {
		t.Errorf("got %d %s", code, message(answer))
	}
}
