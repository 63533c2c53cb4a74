package kubernetes

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/sluice-go/sluice/internal/proof/need"
)

// installKEDA defines KEDA's resources as the module says whose code cmd/sluice/internal/proof/keda
// tests.
func installKEDA(t *testing.T) {
	t.Helper()
	download := exec.Command("go", "mod", "download", "-json", "github.com/kedacore/keda/v2")
	download.Dir, download.Env = filepath.Join(root(), "cmd", "sluice", "internal", "proof", "keda"), append(os.Environ(), "GOWORK=off")
	out, err := download.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(out, &module); err != nil || module.Dir == "" {
		t.Fatalf("%v: %s", err, out)
	}
	for _, name := range []string{"scaledobjects", "triggerauthentications"} {
		text, err := os.ReadFile(filepath.Join(module.Dir, "config", "crd", "bases", "keda.sh_"+name+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		for _, definition := range parse(t, text) {
			server.apply(t, definition, "")
			if err := served(definition, "v1alpha1"); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// blocksOf returns the YAML blocks of docs/keda.md that have a text.
func blocksOf(t *testing.T, with string) (blocks []map[string]any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root(), "docs", "keda.md"))
	if err != nil {
		t.Fatal(err)
	}
	for part := range strings.SplitSeq(string(text), "\n\n") {
		if !strings.HasPrefix(part, "    ") || !strings.Contains(part, with) {
			continue
		}
		var block map[string]any
		if err := yaml.Unmarshal([]byte(strings.ReplaceAll("\n"+part, "\n    ", "\n")), &block); err != nil {
			t.Fatalf("%v in\n%s", err, part)
		}
		blocks = append(blocks, block)
	}
	if len(blocks) != 1 {
		t.Fatalf("docs/keda.md has %d blocks with %s", len(blocks), with)
	}
	return blocks
}

// TestScaledObject: KEDA's own definition of a ScaledObject accepts the example and what
// docs/keda.md shows, without a field that it does not know, and refuses mistakes in them.
func TestScaledObject(t *testing.T) {
	need.Kubernetes(t)
	installKEDA(t)
	namespace := server.namespace(t, "scaledobject")
	text, err := os.ReadFile(filepath.Join(root(), "examples", "keda", "scaledobject.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	example := func(change func(spec, trigger map[string]any)) object {
		t.Helper()
		all := parse(t, text)
		if len(all) != 1 {
			t.Fatalf("the example has %d objects", len(all))
		}
		o := all[0]
		o["metadata"].(map[string]any)["namespace"] = namespace
		spec := o["spec"].(map[string]any)
		change(spec, spec["triggers"].([]any)[0].(map[string]any))
		return o
	}
	tried := func(o object) error {
		if code, answer := server.tryApply(o, "&dryRun=All"); code != http.StatusOK && code != http.StatusCreated {
			return fmt.Errorf("%d %s", code, message(answer))
		}
		return nil
	}
	server.apply(t, example(func(_, _ map[string]any) {}), "")

	guide, err := os.ReadFile(filepath.Join(root(), "docs", "kubernetes.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, block, found := strings.Cut(string(guide), "```yaml\n# scaledobject.yaml\n")
	block, _, closed := strings.Cut(block, "```")
	if !found || !closed {
		t.Fatal("docs/kubernetes.md has no scaledobject.yaml")
	}
	inGuide := parse(t, []byte(block))[0]
	inGuide["metadata"].(map[string]any)["namespace"] = namespace

	triggers, trusted := blocksOf(t, "triggers:")[0], blocksOf(t, "authenticationRef:")[0]
	accepted := map[string]object{
		"docs/kubernetes.md":  inGuide,
		"the page's triggers": example(func(spec, _ map[string]any) { maps.Copy(spec, triggers) }),
		"the page's TLS":      example(func(_, trigger map[string]any) { maps.Copy(trigger, trusted) }),
		"external-push":       example(func(_, trigger map[string]any) { trigger["type"] = "external-push" }),
		"the TriggerAuthentication": {"apiVersion": "keda.sh/v1alpha1", "kind": "TriggerAuthentication", "metadata": map[string]any{"name": "sluice-keda", "namespace": namespace},
			"spec": map[string]any{"secretTargetRef": []any{
				map[string]any{"parameter": "caCert", "name": "sluice-keda", "key": "ca.crt"},
				map[string]any{"parameter": "tlsClientCert", "name": "sluice-keda", "key": "tls.crt"},
				map[string]any{"parameter": "tlsClientKey", "name": "sluice-keda", "key": "tls.key"},
			}}},
	}
	for name, o := range accepted {
		if err := tried(o); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, o := range map[string]object{
		"an unknown field": example(func(spec, _ map[string]any) { spec["cooldown"] = 300 }),
		"a number as text": example(func(spec, _ map[string]any) { spec["pollingInterval"] = "15" }),
		"a number in the metadata": example(func(_, trigger map[string]any) {
			trigger["metadata"].(map[string]any)["targetLag"] = 1000
		}),
		"no triggers": example(func(spec, _ map[string]any) { delete(spec, "triggers") }),
		"no type":     example(func(_, trigger map[string]any) { delete(trigger, "type") }),
	} {
		if err := tried(o); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if bytes.Contains(text, []byte("namespace:")) {
		t.Error("the example has a namespace: the test replaces it")
	}
}
