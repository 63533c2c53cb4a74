package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// sound is a small project without violations.
func sound() graph {
	g := graph{}
	for path, imports := range map[string]string{
		"":                             "fmt driver internal/worklist internal/engine/group internal/engine/batch internal/engine/stream",
		"driver":                       "",
		"internal/worklist":            "",
		"internal/engine":              "driver",
		"internal/engine/partition":    "driver internal/engine",
		"internal/engine/group":        "internal/engine/partition",
		"internal/engine/batch":        "internal/engine/partition",
		"internal/engine/stream":       "internal/engine/partition",
		"internal/engine/enginetest":   ". driver sluicetest",
		"internal/config/strictyaml":   "go.yaml.in/yaml/v3 internal/worklist",
		"internal/proof/suite":         "",
		"proof/sim":                    ". internal/proof/pgtest",
		"internal/proof/pgtest":        ". sluicetest",
		"eventhub":                     "driver github.com/Azure/go-amqp",
		"pgstore":                      "driver internal/worklist",
		"sqlstore":                     "driver",
		"emulator":                     "internal/worklist internal/amqp",
		"internal/amqp":                "",
		"sluicetest":                   ".",
		"storetest":                    ". driver internal/proof/suite",
		"health":                       ".",
		"audit":                        ".",
		"pipeline/web":                 ". audit health",
		"pipeline":                     ". eventhub pgstore internal/config/strictyaml",
		"autoscale":                    "internal/worklist",
		"autoscale/internal/azerror":   "",
		"autoscale/source/lag":         ". autoscale",
		"autoscale/target/webhook":     "autoscale",
		"autoscale/autoscaletest":      "autoscale internal/proof/suite",
		"autoscale/config":             "autoscale autoscale/source/lag pipeline",
		"cmd/sluice":                   ". emulator pipeline/web autoscale/config cmd/sluice/internal/usage",
		"cmd/sluice/internal/usage":    "",
		"cmd/sluice/internal/term":     "golang.org/x/term",
		"cmd/sluice/internal/flights":  ". emulator eventhub sqlstore pipeline/web cmd/sluice/internal/term",
		"cmd/sluice/demo":              "cmd/sluice/internal/flights",
		"cmd/sluice/internal/proof/ch": "cmd/sluice/internal/usage emulator internal/proof/pgtest",
	} {
		g.add(join(path), false, paths(imports), nil)
	}
	g.add("fmt", true, nil, nil)
	g.add(join("pipeline/web"), false, nil, paths("emulator internal/proof/pgtest sluicetest"))
	g.add(join("internal/engine/group"), false, nil, paths("internal/engine/enginetest"))
	return g
}

// paths makes import paths: "." is the root, a name that has no dot is ours.
func paths(text string) []string {
	var list []string
	for _, field := range strings.Fields(text) {
		switch {
		case field == ".":
			field = module
		case field != "fmt" && !strings.Contains(strings.Split(field, "/")[0], "."):
			field = join(field)
		}
		list = append(list, field)
	}
	return list
}

func TestSoundProject(t *testing.T) {
	if problems := sound().check(); len(problems) > 0 {
		t.Errorf("problems: %q", problems)
	}
}

func TestViolations(t *testing.T) {
	fired := map[string]bool{}
	for _, c := range []struct {
		from, to string
		test     bool
		want     []string // what the lines contain, package and import aside
	}{
		{from: "", to: "github.com/jackc/pgx/v5", want: []string{"the root package imports the standard library"}},
		{from: "internal/worklist", to: "golang.org/x/time/rate", want: []string{"(through " + module + "/internal/worklist): the root package imports the standard library"}},
		{from: "internal/worklist", to: "sqlstore", want: []string{"a package below internal/ imports", "(through " + module + "/internal/worklist): a driver imports", "a program with the root, eventhub and pgstore"}},
		{from: "internal/engine", to: "internal/engine/partition", want: []string{"what the rooms of the engine share imports"}},
		{from: "internal/engine/partition", to: "internal/engine/group", want: []string{"it does not know who holds it"}},
		{from: "internal/engine/batch", to: "internal/engine/stream", want: []string{"never each other"}},
		{from: "internal/worklist", to: "internal/engine/partition", want: []string{"only the root package imports the rooms"}},
		{from: "internal/engine/enginetest", to: "pgstore", want: []string{"internal/engine/enginetest imports the root, driver"}},
		{from: "internal/engine/batch", to: "internal/engine/enginetest", want: []string{"only tests do"}},
		{from: "internal/proof/pgtest", to: "internal/engine/enginetest", want: []string{"only tests do"}},
		{from: "internal/config/strictyaml", to: "driver", want: []string{"what configuration files are read with"}},
		{from: "driver", to: "internal/config/strictyaml", want: []string{"go.yaml.in/yaml/v3 (through " + module + "/internal/config/strictyaml): driver and stamp import the standard library"}},
		{from: "eventhub", to: "", want: []string{"never the engine or another driver"}},
		{from: "eventhub", to: "pgstore", want: []string{"a driver imports driver"}},
		{from: "eventhub", to: "health", want: []string{"a driver imports driver", "a program with the root, eventhub and pgstore"}},
		{from: "sqlstore", to: "emulator", want: []string{"a driver imports driver"}},
		{from: "sqlstore", to: "internal/proof/pgtest", want: []string{"a driver imports driver"}},
		{from: "emulator", to: "", want: []string{"the emulator shares no code"}},
		{from: "emulator", to: "pipeline", test: true, want: []string{"emulator and sluiceotel import the library alone"}},
		{from: "cmd/sluice/internal/proof/ch", to: "proof/sim", test: true, want: []string{"no module imports proof"}},
		{from: "sluicetest", to: "autoscale", want: []string{"sluicetest and storetest import", "the library's module imports nothing"}},
		{from: "storetest", to: "internal/proof/pgtest", want: []string{"sluicetest and storetest import"}},
		{from: "sender/kafkasender", to: "pgstore", want: []string{"sender/kafkasender imports driver"}},
		{from: "health", to: "eventhub", want: []string{"an observer imports"}},
		{from: "audit", to: "sqlstore", want: []string{"audit imports the root", "(through " + module + "/audit): web imports"}},
		{from: "pipeline/web", to: "pgstore", want: []string{"web imports"}},
		{from: "pipeline/web", to: "autoscale", test: true, want: []string{"pipeline and internal/config import neither"}},
		{from: "audit", to: "cmd/sluice/internal/usage", test: true, want: []string{"the library's module imports nothing"}},
		{from: "audit", to: "pipeline", test: true, want: []string{"the library's module imports nothing"}},
		{from: "pipeline", to: "emulator", want: []string{"pipeline imports"}},
		{from: "cmd/sluice/internal/term", to: "eventhub", want: []string{"what the first demo shows its progress with"}},
		{from: "cmd/sluice/demo", to: "pipeline", want: []string{"the first demo is compiled by everybody"}},
		{from: "cmd/sluice/internal/flights", to: "kafka", want: []string{"the first demo is compiled by everybody"}},
		{from: "pipeline/web", to: "google.golang.org/grpc", want: []string{"google.golang.org/grpc (through " + module + "/cmd/sluice/internal/flights, " + module + "/pipeline/web): the first demo compiles few other modules"}},
		{from: "internal/proof/pgtest", to: "autoscale", want: []string{"a package below internal/proof/ imports", "the library's module imports nothing"}},
		{from: "internal/proof/suite", to: "", want: []string{"internal/proof/suite and need import no other"}},
		{from: "autoscale", to: "eventhub", want: []string{"autoscale imports the root"}},
		{from: "autoscale/internal/published", to: "internal/worklist", want: []string{"autoscale/internal/published imports nothing"}},
		{from: "autoscale/internal/azerror", to: "autoscale/target/webhook", want: []string{"a package below autoscale/internal/"}},
		{from: "autoscale/source/lag", to: "autoscale/target/webhook", want: []string{"never its siblings"}},
		{from: "autoscale/source/lag", to: "cmd/sluice/internal/usage", test: true, want: []string{"the module autoscale does not import cmd/sluice"}},
		{from: "autoscale/autoscaletest", to: "internal/proof/pgtest", want: []string{"autoscaletest imports"}},
		{from: "autoscale/config", to: "pipeline/web", want: []string{"autoscale/config imports"}},
		{from: "cmd/sluice/internal/usage", to: "sluicetest", want: []string{"the program imports no suite"}},
		{from: "cmd/sluice", to: "internal/proof/pgtest", want: []string{"the program imports no suite"}},
		{from: "util", to: "fmt", want: []string{module + "/util is in no group"}},
	} {
		g := sound()
		if c.test {
			g.add(join(c.from), false, nil, paths(c.to))
		} else {
			to := paths(c.to)
			if c.to == "" {
				to = []string{module}
			}
			g.add(join(c.from), false, to, nil)
		}
		problems := g.check()
		for _, want := range c.want {
			if !slices.ContainsFunc(problems, func(p string) bool { return strings.Contains(p, want) && strings.HasPrefix(p, module) }) {
				t.Errorf("%q imports %q: no line has %q in %q", c.from, c.to, want, problems)
			}
		}
		for _, r := range rules {
			fired[r.text] = fired[r.text] || slices.ContainsFunc(problems, func(p string) bool { return strings.HasSuffix(p, ": "+r.text) })
		}
	}
	for _, r := range rules {
		if r.text != "" && !fired[r.text] {
			t.Errorf("no case violates this rule: %s", r.text)
		}
	}
}

func TestLibraryModules(t *testing.T) {
	g := sound()
	for i := range maxLibraryModules + 1 {
		to := fmt.Sprintf("example.com/m%d/p", i)
		g[to] = &node{module: fmt.Sprintf("example.com/m%d", i)}
		from := "kafka"
		if i == maxLibraryModules {
			from = "internal/proof/pgtest" // what only tests import
		}
		g.add(join(from), false, []string{to}, nil)
	}
	if problems := g.check(); len(problems) > 0 {
		t.Errorf("%d modules: %q", maxLibraryModules, problems)
	}
	g.add(join("kafka"), false, []string{fmt.Sprintf("example.com/m%d/p", maxLibraryModules)}, nil)
	if problems := g.check(); len(problems) != 1 || !strings.Contains(problems[0], "imports from 17 modules, at most 16: example.com/m0 ") {
		t.Errorf("one module more: %q", problems)
	}
}

func TestLongestPatternDecides(t *testing.T) {
	for path, want := range map[string]string{
		"": "root", "internal/worklist": "internal", "internal/proof/pgtest": "proof", "internal/proof/suite": "suite", "cmd/sluice/internal/flights": "first demo", "internal/engine/enginetest": "enginetest", "autoscale": "autoscale",
		"autoscale/target/webhook": "below autoscale", "autoscale/config/internal/rulefile": "autoscale/config", "cmd/sluice/internal/proof/attack": "proof of modules",
	} {
		if r := ruleOf(join(path)); r == nil || r.group != want {
			t.Errorf("%q is in the group %v, not %s", path, r, want)
		}
	}
	if r := ruleOf(join("emulators")); r != nil {
		t.Errorf("a package with a similar name is in the group %s", r.group)
	}
}

func TestGoModNamesNothingForbidden(t *testing.T) {
	const sound = "module github.com/sluice-go/sluice\n\nrequire (\n\tgithub.com/jackc/pgx/v5 v5.12.0 // not k8s.io/api\n\tgithub.com/prometheus/client_model v0.6.3 // indirect\n)\n"
	for name, paths := range forbiddenModules {
		if problems := checkGoMod(name, sound); len(problems) > 0 {
			t.Errorf("%s: problems: %q", name, problems)
		}
		for _, path := range paths {
			for _, line := range []string{"require " + path + "/x v1.0.0\n", "require (\n\t" + path + " v1.0.0 // indirect\n)\n"} {
				if problems := checkGoMod(name, sound+line); len(problems) != 1 || !strings.Contains(problems[0], path) {
					t.Errorf("%s: %q: problems %q", name, line, problems)
				}
			}
		}
	}
}
