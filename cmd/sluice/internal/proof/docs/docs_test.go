package docs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice/internal/proof/built"
	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/internal/proof/testserver"
	"github.com/sluice-go/sluice/internal/selfsigned"
)

// unchecked are the languages whose blocks nothing here can check, and why.
var unchecked = map[string]string{
	"text":       "output, an address or a message",
	"csharp":     "the .NET SDK is not installed",
	"java":       "the Azure SDK for Java is not installed",
	"kusto":      "only Azure's Log Analytics has a parser",
	"promql":     "promtool is not installed for it",
	"properties": "names and values of another program",
	"diff":       "parts of files",
	"sql":        "sql_test.go checks it",
	"go":         "TestGo compiles it",
}

func repository(t *testing.T) string {
	t.Helper()
	root, err := testserver.Repository()
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// blocks returns the blocks of all pages that a test wants.
func blocks(t *testing.T, languages ...string) (wanted []Block) {
	t.Helper()
	root := repository(t)
	pages, err := Pages(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		list, err := Read(root, page)
		if err != nil {
			t.Error(err)
		}
		for _, b := range list {
			if len(languages) == 0 || slices.Contains(languages, b.Language) {
				wanted = append(wanted, b)
			}
		}
	}
	return wanted
}

func TestEveryBlockIsOfAKnownLanguage(t *testing.T) {
	checked := []string{"sh", "console", "yaml", "json", "python", "javascript"}
	count := map[string]int{}
	for _, b := range blocks(t) {
		count[b.Language]++
		if _, ok := unchecked[b.Language]; !ok && !slices.Contains(checked, b.Language) {
			t.Errorf("%s: nothing checks blocks of %q: use one of %v, or add a check", b, b.Language, checked)
		}
	}
	t.Log(count)
}

func TestYAML(t *testing.T) {
	list := blocks(t, "yaml")
	values, err := os.ReadFile(filepath.Join(repository(t), "deploy/helm/sluice/values.yaml"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	inFilesThatPagesName(t)
	for _, b := range list {
		if err := YAML(b, Keys(string(values))); err != nil {
			t.Error(err)
		}
	}
	if YAML(Block{Text: "partitoins: 3\n"}, Keys(string(values))) == nil {
		t.Error("a key that does not exist is accepted")
	}
}

// inFilesThatPagesName changes into a directory with the files that blocks refer to.
func inFilesThatPagesName(t *testing.T) {
	examples := filepath.Join(repository(t), "examples")
	t.Chdir(t.TempDir())
	now := time.Now()
	certificate, err := selfsigned.New(&selfsigned.Config{CommonName: "docs", NotBefore: now, NotAfter: now.Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("ca.pem", certificate.CertPEM, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, example := range map[string]string{"flights.avsc": "flight.avsc", "orders.yaml": "flights.yaml", "flights.yaml": "flights.yaml", "kafka.yaml": "kafka.yaml"} {
		if err := os.Symlink(filepath.Join(examples, example), name); err != nil {
			t.Fatal(err)
		}
	}
}

func TestJSON(t *testing.T) {
	for _, b := range blocks(t, "json") {
		d := json.NewDecoder(strings.NewReader(b.Text))
		for {
			var v any
			if err := d.Decode(&v); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Errorf("%s: %v", b, err)
				break
			}
		}
	}
}

// shell returns the commands of a block: of a console, the lines after the prompt.
func shell(b Block) string {
	if b.Language == "sh" {
		return b.Text
	}
	var lines []string
	for line := range strings.Lines(b.Text) {
		if command, ok := strings.CutPrefix(line, "$ "); ok {
			lines = append(lines, command)
		}
	}
	return strings.Join(lines, "")
}

// check runs a program over a text for what is wrong with it.
func check(t *testing.T, b Block, text, program string, args ...string) {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s: %s: %v\n%s", b, program, err, out)
	}
}

func TestShell(t *testing.T) {
	for _, b := range blocks(t, "sh", "console") {
		check(t, b, shell(b), "bash", "-n")
	}
}

func TestPythonAndJavaScript(t *testing.T) {
	need.RealTime(t)
	for _, b := range blocks(t, "python") {
		check(t, b, b.Text, "python3", "-c", "import sys; compile(sys.stdin.read(), 'block', 'exec')")
	}
	node := filepath.Join(repository(t), ".dev/chromium/bin/node")
	for _, b := range blocks(t, "javascript") {
		if _, err := os.Stat(node); err != nil {
			node = "node"
		}
		check(t, b, b.Text, node, "--check", "--input-type=module")
	}
}

var program = built.Main("github.com/sluice-go/sluice/cmd/sluice")

func TestMain(m *testing.M) { os.Exit(built.Run(m)) }

// TestCommands gives each command line of the pages, with --help behind it, to the program: it
// prints the help of the command, unless the command or a flag of it does not exist.
func TestCommands(t *testing.T) {
	need.RealTime(t)
	binary := program.Path(t)
	parses := func(args []string) error {
		if slices.ContainsFunc(args, func(a string) bool { return a == "--" || a == "…" || a == "..." }) {
			args = slices.DeleteFunc(slices.Clone(args), func(a string) bool { return a == "--" || a == "…" || a == "..." })
		}
		out, err := exec.Command(binary, append(slices.Clone(args), "--help")...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s", bytes.TrimSpace(out))
		}
		// A command that has others prints its own help if what follows is none of them.
		_, use, _ := strings.Cut(string(out), "Usage:\n  sluice")
		use, rest, _ := strings.Cut(use, "\n")
		path := len(strings.Fields(strings.TrimSuffix(strings.TrimSpace(use), "[flags]")))
		if strings.Contains(rest, "Available Commands:") && path < len(args) && !strings.HasPrefix(args[path], "-") {
			return fmt.Errorf("there is no command %s", args[path])
		}
		return nil
	}
	for _, wrong := range [][]string{{"run", "a.yaml", "--no-such-flag"}, {"deadletters", "lst"}, {"nothing"}, {"run", "--within", "soon"}} {
		if parses(wrong) == nil {
			t.Errorf("sluice %s is accepted", strings.Join(wrong, " "))
		}
	}
	var wait sync.WaitGroup
	turns := make(chan struct{}, 4)
	seen := map[string]bool{}
	for _, b := range blocks(t, "sh", "console") {
		for _, command := range Commands(shell(b)) {
			args, ok := Sluice(command)
			if line := strings.Join(args, " "); !ok || seen[line] {
				continue
			} else {
				seen[line] = true
			}
			wait.Go(func() {
				turns <- struct{}{}
				defer func() { <-turns }()
				if err := parses(args); err != nil {
					t.Errorf("%s: sluice %s: %v", b, strings.Join(args, " "), err)
				}
			})
		}
	}
	wait.Wait()
	t.Logf("%d command lines", len(seen))
}

// TestGo compiles the blocks of Go that are not a part of a program below examples/, which tests of
// its own build and run.
func TestGo(t *testing.T) {
	root := repository(t)
	examples := ""
	for _, dir := range []string{"examples/go", "."} {
		files, err := filepath.Glob(filepath.Join(root, dir, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		more, _ := filepath.Glob(filepath.Join(root, dir, "*/*.go"))
		if dir != "." {
			files = append(files, more...)
		}
		for _, f := range files {
			if text, err := os.ReadFile(f); err == nil {
				examples += withoutIndent(string(text))
			}
		}
	}
	overlay := map[string]map[string]string{"Replace": {}}
	dir, files := filepath.Join(root, "cmd/sluice/internal/proof/docs/blocks"), t.TempDir()
	for i, b := range blocks(t, "go") {
		if strings.Contains(examples, withoutIndent(b.Text)) {
			continue
		}
		name := fmt.Sprintf("block%d", i)
		path := filepath.Join(files, name+".go")
		if err := os.WriteFile(path, []byte(Program(b, name)), 0o600); err != nil {
			t.Fatal(err)
		}
		overlay["Replace"][filepath.Join(dir, name, name+".go")] = path
	}
	text, err := json.Marshal(overlay)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(files, "overlay.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"build", "-overlay", path}
	for name := range overlay["Replace"] {
		args = append(args, "./"+filepath.Base(filepath.Dir(dir))+"/blocks/"+filepath.Base(filepath.Dir(name)))
	}
	if len(args) == 3 {
		return
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = filepath.Dir(filepath.Dir(dir))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func withoutIndent(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(strings.TrimSpace(line) + "\n")
	}
	return b.String()
}

func TestParse(t *testing.T) {
	list, err := Parse("page.md", "# A\n\nText.\n\n    one\n    two\n\n## B\n\n- item\n\n    not code\n\n        three\n\n```yaml\na: 1\n```\n")
	if err != nil {
		t.Fatal(err)
	}
	want := []Block{
		{"page.md", 5, "A", "sh", "one\ntwo\n"},
		{"page.md", 14, "B", "sh", "  three\n"},
		{"page.md", 17, "B", "yaml", "a: 1\n"},
	}
	if !slices.Equal(list, want) {
		t.Errorf("%q", list)
	}
	for _, wrong := range []string{"```\na\n```\n", "```sh\na\n"} {
		if _, err := Parse("page.md", wrong); err == nil {
			t.Errorf("%q is accepted", wrong)
		}
	}
}

func TestWordsOfCommands(t *testing.T) {
	got := Commands("A=1 sluice run 'a b' \"c\" # d\nexport K=\"$(az x)\" && go run ./cmd/sluice \\\n  demo >out 2>&1 | tail &\n")
	want := [][]string{{"sluice", "run", "a b", "c"}, {"export", "K=$(az x)"}, {"go", "run", "./cmd/sluice", "demo"}, {"tail"}}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%q", got)
	}
	if args, ok := Sluice([]string{"go", "run", "./cmd/sluice/demo", "--once"}); !ok || fmt.Sprint(args) != "[demo --once]" {
		t.Errorf("go run ./cmd/sluice/demo has the arguments %q", args)
	}
	if args, ok := Sluice(got[2]); !ok || fmt.Sprint(args) != "[demo]" {
		t.Errorf("%q, %v", args, ok)
	}
}
