package kubernetes

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.yaml.in/yaml/v3"
)

// object is an object of Kubernetes.
type object map[string]any

func (o object) kind() string { return o["kind"].(string) }
func (o object) name() string { return o.text("metadata", "name") }

// get returns what is at a path of keys, or nil.
func (o object) get(keys ...string) any {
	var value any = map[string]any(o)
	for _, key := range keys {
		inner, ok := value.(map[string]any)
		if !ok {
			return nil
		}
		value = inner[key]
	}
	return value
}

func (o object) text(keys ...string) string {
	s, _ := o.get(keys...).(string)
	return s
}

// collections are the names of kinds in paths, where they are not the kind with an s.
var collections = map[string]string{"NetworkPolicy": "networkpolicies", "SecretProviderClass": "secretproviderclasses"}

func (o object) path() string {
	version := o.text("apiVersion")
	base := "/apis/" + version
	if !strings.Contains(version, "/") {
		base = "/api/" + version
	}
	if namespace := o.text("metadata", "namespace"); namespace != "" {
		base += "/namespaces/" + namespace
	}
	collection := collections[o.kind()]
	if collection == "" {
		collection = strings.ToLower(o.kind()) + "s"
	}
	return base + "/" + collection + "/" + o.name()
}

// pod returns the pod that a Deployment or StatefulSet makes, or nil.
func (o object) pod() object {
	template, ok := o.get("spec", "template").(map[string]any)
	if !ok {
		return nil
	}
	metadata := maps.Clone(template["metadata"].(map[string]any))
	metadata["name"], metadata["namespace"] = o.name()+"-0", o.get("metadata", "namespace")
	return object{"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
}

// parse returns the objects of a YAML file with several documents.
func parse(t *testing.T, text []byte) []object {
	t.Helper()
	var all []object
	for documents := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var o map[string]any
		err := documents.Decode(&o)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		if o != nil {
			all = append(all, o)
		}
	}
}

// find returns the object of that kind and name.
func find(t *testing.T, all []object, kind, name string) object {
	t.Helper()
	for _, o := range all {
		if o.kind() == kind && o.name() == name {
			return o
		}
	}
	t.Fatalf("there is no %s %s", kind, name)
	return nil
}

// text is all objects as one line of JSON each, with sorted keys.
func text(all []object) string {
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	for _, o := range all {
		_ = encoder.Encode(o)
	}
	return b.String()
}

var chart = filepath.Join(root(), "deploy", "helm", "sluice")

// values are values of the chart, as in a file for helm.
type values map[string]any

// merge returns the values with those of a YAML text, which are merged into them.
func (v values) merge(t *testing.T, text string) values {
	t.Helper()
	var more map[string]any
	if err := yaml.Unmarshal([]byte(text), &more); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return merge(v, more)
}

func merge(into, from map[string]any) map[string]any {
	all := maps.Clone(into)
	for key, value := range from {
		inner, ok := value.(map[string]any)
		old, both := all[key].(map[string]any)
		if ok && both {
			value = merge(old, inner)
		}
		all[key] = value
	}
	return all
}

// nested returns the values with one, at a path such as image.tag.
func nested(path string, value any) map[string]any {
	for _, key := range slices.Backward(strings.Split(path, ".")) {
		value = map[string]any{key: value}
	}
	return value.(map[string]any)
}

// render renders the chart, as the release sluice.
func render(t *testing.T, namespace string, v values) []object {
	t.Helper()
	text, err := tryRender(t, namespace, v)
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, []byte(text))
}

// rendered are the outputs of helm, by namespace and values: many tests begin with the same.
var rendered sync.Map

func tryRender(t *testing.T, namespace string, v values) (string, error) {
	t.Helper()
	text, err := yaml.Marshal(map[string]any(v))
	if err != nil {
		t.Fatal(err)
	}
	key := namespace + "\n" + string(text)
	once, _ := rendered.LoadOrStore(key, sync.OnceValues(func() (string, error) { return renderFile(t, namespace, text) }))
	return once.(func() (string, error))()
}

func renderFile(t *testing.T, namespace string, text []byte) (string, error) {
	t.Helper()
	dir, err := os.MkdirTemp(server.dir, "values-") // a name without commas, which separate files
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "values.yaml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return helm(t, "template", "sluice", chart, "--namespace", namespace, "--values", path)
}

// helm runs helm on the API server, with a directory of its own, and returns its output.
func helm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.Command(program("helm"), args...)
	cmd.Env = append(os.Environ(), "HELM_CONFIG_HOME="+dir, "HELM_CACHE_HOME="+dir, "HELM_DATA_HOME="+dir, "KUBECONFIG="+filepath.Join(dir, "none"))
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("helm %s: %w: %s", args[0], err, problems.Bytes())
	}
	return out.String(), nil
}
