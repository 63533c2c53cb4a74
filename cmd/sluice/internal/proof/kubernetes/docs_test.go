package kubernetes

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/sluice-go/sluice/internal/proof/need"
)

var page = filepath.Join(root(), "docs", "kubernetes.md")

// value is a row of the table of values.
type value struct{ path, standard, text string }

// documented returns the values in values.yaml with the comments above them.
func documented(t *testing.T) []value {
	t.Helper()
	source, err := os.ReadFile(filepath.Join(chart, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var document yaml.Node
	if err := yaml.Unmarshal(source, &document); err != nil {
		t.Fatal(err)
	}
	return rows(t, "", document.Content[0])
}

func rows(t *testing.T, path string, mapping *yaml.Node) []value {
	t.Helper()
	var all []value
	for i := 0; i < len(mapping.Content); i += 2 {
		key, content := mapping.Content[i], mapping.Content[i+1]
		below := strings.TrimPrefix(path+"."+key.Value, ".")
		if content.Kind == yaml.MappingNode && content.Style&yaml.FlowStyle == 0 {
			all = append(all, rows(t, below, content)...)
			continue
		}
		comment := strings.Join(strings.Fields(strings.ReplaceAll(lastParagraph(key.HeadComment), "#", "")), " ")
		if comment == "" {
			t.Errorf("values.yaml:%d: %s: there is no comment above it", key.Line, below)
		}
		var standard any
		if err := content.Decode(&standard); err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(standard)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, value{below, string(text), comment})
	}
	return all
}

func lastParagraph(comment string) string {
	paragraphs := strings.Split(comment, "\n\n")
	return paragraphs[len(paragraphs)-1]
}

// TestTableOfValues: docs/reference/chart.md lists values.yaml.
func TestTableOfValues(t *testing.T) {
	need.Kubernetes(t)
	path := filepath.Join(root(), "docs", "reference", "chart.md")
	var want strings.Builder
	want.WriteString("# Values of the Helm chart\n\n[How to use the chart](../kubernetes.md).\n\n| value | default | meaning |\n|---|---|---|\n")
	for _, v := range documented(t) {
		fmt.Fprintf(&want, "| `%s` | `%s` | %s |\n", v.path, v.standard, strings.ReplaceAll(v.text, "|", `\|`))
	}
	if *update {
		if err := os.WriteFile(path, []byte(want.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if found, err := os.ReadFile(path); err != nil || string(found) != want.String() {
		t.Fatalf("docs/reference/chart.md does not list values.yaml (%v): run go test ./cmd/sluice/internal/proof/kubernetes -update", err)
	}
}

// block is a fenced block, in a list too.
var block = regexp.MustCompile("(?ms)^( *)```(sh|yaml)\n(.*?)^ *```$")

// TestPage: the commands of docs/kubernetes.md do what it says, in order. A YAML block that
// begins with a file's name is that file.
func TestPage(t *testing.T) {
	need.Kubernetes(t)
	definitions()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(filepath.Join(root(), "deploy"), filepath.Join(dir, "deploy")); err != nil {
		t.Fatal(err)
	}
	environment := append(os.Environ(), "PATH="+filepath.Dir(program("helm"))+":"+os.Getenv("PATH"), "KUBECONFIG="+server.kubeconfig(t),
		"EVENTHUB_CONNECTION_STRING=Endpoint=sb://contoso/", "DATABASE_URL=sqlite:flights.db", "HOME="+dir)
	ran := 0
	for _, b := range block.FindAllStringSubmatch(string(text), -1) {
		content := strings.ReplaceAll("\n"+b[3], "\n"+b[1], "\n")[1:]
		if b[2] == "yaml" {
			name, _, _ := strings.Cut(strings.TrimPrefix(content, "# "), "\n")
			if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			continue
		}
		cmd := exec.Command("bash", "-euo", "pipefail", "-c", content)
		cmd.Dir, cmd.Env = dir, environment
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v:\n%s%s", err, content, out)
		}
		t.Logf("%s%s", content, out)
		ran++
	}
	if ran < 12 {
		t.Errorf("only %d blocks were run", ran)
	}
}
