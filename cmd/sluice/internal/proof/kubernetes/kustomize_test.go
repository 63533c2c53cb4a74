package kubernetes

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/internal/proof/need"
)

// kustomize builds a directory, with kustomize itself and with kubectl's.
func kustomize(t *testing.T, dir string) []object {
	t.Helper()
	var built [][]byte
	for _, cmd := range []*exec.Cmd{exec.Command(program("kustomize"), "build", dir), exec.Command(program("kubectl"), "kustomize", dir)} {
		var problems bytes.Buffer
		cmd.Stderr = &problems
		text, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v: %s", cmd, err, problems.Bytes())
		}
		built = append(built, text)
	}
	if !bytes.Equal(built[0], built[1]) {
		t.Errorf("kustomize makes\n%s\nand kubectl\n%s", built[0], built[1])
	}
	return parse(t, built[0])
}

// TestKustomize: the manifests in deploy/kustomize are those of the chart, and the API server
// takes them.
func TestKustomize(t *testing.T) {
	need.Kubernetes(t)
	fresh := t.TempDir()
	if out, err := exec.Command(filepath.Join(root(), "scripts", "kustomize"), fresh).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	examples, err := filepath.Glob(filepath.Join(root(), "deploy/kustomize/*"))
	if err != nil || len(examples) != 3 {
		t.Fatalf("%v, %v", examples, err)
	}
	server.namespace(t, "sluice")
	for _, dir := range examples {
		name := filepath.Base(dir)
		got, err := os.ReadFile(filepath.Join(dir, "sluice.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(filepath.Join(fresh, name, "sluice.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("deploy/kustomize/%s/sluice.yaml is not that of the chart: run scripts/kustomize", name)
		}
		for _, o := range kustomize(t, dir) {
			server.apply(t, o, "&dryRun=All")
			if pod := o.pod(); pod != nil {
				server.apply(t, pod, "&dryRun=All")
			}
		}
	}
}

// TestOverlay: an overlay can replace namespace, image and file. A changed file gets another
// name, so that the pods are replaced.
func TestOverlay(t *testing.T) {
	need.Kubernetes(t)
	dir := t.TempDir()
	bases, err := filepath.Rel(dir, filepath.Join(root(), "deploy/kustomize/autoscaled"))
	if err != nil {
		t.Fatal(err)
	}
	overlay := "resources: [" + bases + `]
namespace: shop
images: [{name: sluice, newName: registry.example/sluice, newTag: v1.2.3}]
configMapGenerator:
  - {name: sluice-flights-files, behavior: replace, files: [flights.yaml]}
`
	for name, text := range map[string]string{"kustomization.yaml": overlay, "flights.yaml": "partitions: all\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	server.namespace(t, "shop")
	all := kustomize(t, dir)
	var file string
	for _, o := range all {
		server.apply(t, o, "&dryRun=All")
		if o.text("metadata", "namespace") != "shop" {
			t.Errorf("%s %s is in %q", o.kind(), o.name(), o.text("metadata", "namespace"))
		}
		if o.kind() == "ConfigMap" && o.text("data", "flights.yaml") == "partitions: all\n" {
			file = o.name()
		}
	}
	pods := text([]object{find(t, all, "Deployment", "sluice-flights"), find(t, all, "RoleBinding", "sluice-autoscaler")})
	for _, wanted := range []string{`"configMap":{"name":"` + file + `"}`, `"image":"registry.example/sluice:v1.2.3"`, `"name":"sluice-autoscaler","namespace":"shop"`} {
		if !strings.Contains(pods, wanted) {
			t.Errorf("there is no %s in\n%s", wanted, pods)
		}
	}
	if role := text([]object{find(t, all, "Role", "sluice-autoscaler")}); !strings.Contains(role, `"resourceNames":["sluice-flights"]`) {
		t.Errorf("the autoscaler's Role is %s", role)
	}
	if !strings.HasPrefix(file, "sluice-flights-files-") {
		t.Errorf("the file is in the ConfigMap %q", file)
	}
}
