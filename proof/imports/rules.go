package main

import (
	"fmt"
	"slices"
	"strings"
)

// rule says what the packages of a group may import. Outside of tests it covers
// indirect imports too: a package must not reach by a detour what it may not
// import directly.
type rule struct {
	group string
	// paths are the group's packages, below the module's path. "a/..." is a and
	// all that lies below it; the longest pattern that matches decides.
	paths []string
	// may are the groups that its packages may import, beside its own. Packages
	// of the groups "below autoscale" and "below engine" may not import each other.
	may []string
	// standardOnly: nothing outside of the standard library and this project.
	standardOnly bool
	text         string
}

var drivers = []string{"eventhub", "pgstore", "sqlstore", "blobstore", "cosmos", "sender", "kafka", "webhook", "outbox"}

var rules = append([]rule{
	{"root", []string{""}, []string{"driver", "internal", "engine", "partition", "below engine"}, true,
		"the root package imports the standard library, driver, stamp and internal/ only"},
	{"driver", []string{"driver/...", "stamp/..."}, []string{"internal"}, true,
		"driver and stamp import the standard library and internal/ only"},
	{"engine", []string{"internal/engine"}, []string{"driver", "internal"}, true,
		"what the rooms of the engine share imports driver, stamp and internal/ only, none of them"},
	{"partition", []string{"internal/engine/partition"}, []string{"driver", "internal", "engine"}, true,
		"internal/engine/partition imports driver, stamp, internal/ and internal/engine only: it does not know who holds it and what its worker does"},
	{"below engine", []string{"internal/engine/group", "internal/engine/batch", "internal/engine/stream", "internal/engine/replay"}, []string{"driver", "internal", "engine", "partition"}, true,
		"group, batch, stream and replay import partition and what lies below it, never each other"},
	{"enginetest", []string{"internal/engine/enginetest"}, []string{"root", "driver", "internal", "suites", "suite"}, false,
		"internal/engine/enginetest imports the root, driver, stamp, internal/ and sluicetest only"},
	{"internal", []string{"internal/..."}, []string{"root", "driver", "internal"}, false,
		"a package below internal/ imports the root, driver, stamp and internal/ at most"},
	{"emulator", []string{"emulator/..."}, []string{"internal"}, false,
		"the emulator shares no code with the engine: it imports internal/ only"},
	{"suites", []string{"sluicetest/...", "storetest/..."}, []string{"root", "driver", "internal", "suites", "suite"}, false,
		"sluicetest and storetest import the root, driver, internal/ and internal/proof/suite and need only"},
	{"observers", []string{"sluiceotel/...", "health/..."}, []string{"root", "driver", "internal", "observers"}, false,
		"an observer imports the root, driver, internal/ and other observers only"},
	{"kafkasender", []string{"sender/kafkasender"}, []string{"driver", "internal", "sender", "kafka"}, false,
		"sender/kafkasender imports driver, stamp, internal/, sender and kafka only"},
	{"audit", []string{"audit/..."}, []string{"root", "driver", "internal"}, true,
		"audit imports the root, driver, stamp and internal/ only, no driver of a database"},
	{"web", []string{"pipeline/web/..."}, []string{"root", "driver", "internal", "audit", "observers"}, false,
		"web imports the root, driver, internal/, audit and the observers only"},
	{"config", []string{"internal/config/..."}, []string{"internal"}, false,
		"what configuration files are read with imports internal/ only"},
	{"pipeline", []string{"pipeline/..."}, append([]string{"root", "driver", "internal", "config", "observers", "kafkasender"}, drivers...), false,
		"pipeline imports the root, stamp, the drivers, the observers and internal/ only, not web"},
	{"proof", []string{"internal/proof/..."}, []string{"emulator", "any of the library"}, false,
		"a package below internal/proof/ imports the library and the emulator only"},
	{"suite", []string{"internal/proof/suite", "internal/proof/need"}, []string{}, false,
		"internal/proof/suite and need import no other package of ours"},

	{"autoscale", []string{"autoscale"}, []string{"root", "internal", "published"}, false,
		"autoscale imports the root of the library, internal/ and the published formats only"},
	{"published", []string{"autoscale/internal/published"}, nil, false,
		"autoscale/internal/published imports nothing of this repository"},
	{"autoscale/internal", []string{"autoscale/internal/..."}, []string{"internal"}, false,
		"a package below autoscale/internal/ imports internal/ only"},
	{"below autoscale", []string{"autoscale/..."}, []string{"root", "driver", "internal", "published", "autoscale", "autoscale/internal"}, false,
		"a package below autoscale imports autoscale, the root of the library and internal/ only, never its siblings"},
	{"autoscaletest", []string{"autoscale/autoscaletest"}, []string{"root", "internal", "published", "suite", "autoscale"}, false,
		"autoscaletest imports autoscale and internal/proof/suite and need only"},
	{"autoscale/config", []string{"autoscale/config/..."}, append([]string{"root", "driver", "internal", "config", "observers", "pipeline",
		"autoscale", "autoscale/internal", "published", "below autoscale", "kafkasender"}, drivers...), false,
		"autoscale/config imports what lies below autoscale, pipeline and internal/ only"},

	{"cmd", []string{"cmd/sluice/..."}, []string{"any but proof"}, false,
		"the program imports no suite and nothing below internal/proof/: tests do"},
	{"progress", []string{"cmd/sluice/internal/catchup", "cmd/sluice/internal/progress", "cmd/sluice/internal/term"}, []string{"root", "driver", "internal"}, false,
		"what the first demo shows its progress with imports the root, driver, stamp and internal/ only"},
	{"first demo", []string{"cmd/sluice/demo/...", "cmd/sluice/internal/flights"}, []string{"root", "driver", "internal", "progress", "audit", "observers", "emulator", "eventhub", "sqlstore", "web"}, false,
		"the first demo is compiled by everybody who tries Sluice: it imports what it shows, never pipeline, kafka or another store"},
	{"proof of modules", []string{"cmd/sluice/internal/proof/...", "proof/..."}, []string{"any"}, false, ""},
}, driverRules()...)

func driverRules() []rule {
	var list []rule
	for _, name := range drivers {
		list = append(list, rule{name, []string{name + "/..."}, []string{"driver", "internal"}, false,
			"a driver imports driver, stamp and internal/ only, never the engine or another driver"})
	}
	return list
}

// The rules about whole modules hold for tests too.
var moduleRules = []struct {
	modules, not []string
	text         string
}{
	{[]string{"library"}, []string{"autoscale", "cmd/sluice", "internal/config", "pipeline"}, "the library's module imports nothing of autoscale, cmd/sluice, internal/config and pipeline, not even in tests"},
	{[]string{"emulator", "sluiceotel"}, []string{"autoscale", "cmd/sluice", "internal/config", "pipeline"}, "emulator and sluiceotel import the library alone, not even in tests another module of ours"},
	{[]string{"internal/config", "pipeline"}, []string{"autoscale", "cmd/sluice"}, "pipeline and internal/config import neither autoscale nor cmd/sluice, not even in tests"},
	{[]string{"library", "emulator", "sluiceotel", "internal/config", "pipeline", "autoscale", "cmd/sluice"}, []string{"proof"}, "no module imports proof, not even in tests"},
	{[]string{"autoscale"}, []string{"cmd/sluice"}, "the module autoscale does not import cmd/sluice, not even in tests"},
}

// A program that imports these packages compiles no packages of ours but them,
// driver and internal/.
var smallProgram = []string{"", "eventhub", "pgstore"}

// What the first demo compiles from other modules: no Kubernetes, Kafka, gRPC, OpenTelemetry or
// Prometheus.
var firstDemoModules = []string{
	"github.com/Azure/azure-sdk-for-go/sdk/azcore", "github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs", "github.com/Azure/go-amqp",
	"github.com/coder/websocket", "github.com/go-sql-driver/mysql", "github.com/jackc/pgx", "github.com/microsoft/go-mssqldb",
	"golang.org/x/sys", "golang.org/x/term", "golang.org/x/time", "modernc.org/sqlite",
}

// A go.mod names no module with one of these paths or below them: who imports ours would
// compile or download them. Of Kubernetes, two requests are needed (autoscale/target/kubernetes).
var forbiddenModules = map[string][]string{
	"go.mod": {"k8s.io", "sigs.k8s.io", "github.com/expr-lang", "github.com/spf13/cobra", "github.com/prometheus/client_golang",
		"golang.org/x/term", "github.com/bufbuild", "github.com/twmb/avro"},
	"pipeline/go.mod":   {"k8s.io", "sigs.k8s.io", "github.com/expr-lang", "github.com/spf13/cobra", "github.com/prometheus/client_golang"},
	"autoscale/go.mod":  {"k8s.io", "sigs.k8s.io"},
	"cmd/sluice/go.mod": {"k8s.io", "sigs.k8s.io"},
}

// The library's packages import from so many modules of others at most, what only tests import
// aside: who requires the library has them in go.mod.
const maxLibraryModules = 16

// libraryModules are the modules of others that the library's packages import, those below
// internal/proof aside.
func (g graph) libraryModules() []string {
	var modules []string
	for path, n := range g {
		if ours(path) && moduleOf(path) == "library" && !isBelow(path, []string{join("internal/proof")}) {
			for _, to := range n.imports {
				if other := g[to]; other != nil && other.module != "" && !ours(to) {
					modules = append(modules, other.module)
				}
			}
		}
	}
	slices.Sort(modules)
	return slices.Compact(modules)
}

// check returns the violations, sorted.
func (g graph) check() []string {
	var problems []string
	for path, n := range g {
		if !ours(path) {
			continue
		}
		of := ruleOf(path)
		if of == nil {
			problems = append(problems, fmt.Sprintf("%s is in no group: add it to rules.go", path))
			continue
		}
		for to, chain := range g.reach(path) {
			if of.forbids(path, to, g[to]) {
				problems = append(problems, fmt.Sprintf("%s imports %s%s: %s", path, to, chainText(chain), of.text))
			}
		}
		for _, to := range n.imports {
			if isEngine(ruleOf(to)) && !isEngine(of) && of.group != "root" {
				problems = append(problems, fmt.Sprintf("%s imports %s: only the root package imports the rooms of the engine", path, to))
			}
			if to == join("internal/engine/enginetest") {
				problems = append(problems, fmt.Sprintf("%s imports %s: only tests do", path, to))
			}
		}
		for _, r := range moduleRules {
			for _, to := range union(n.imports, n.testImports) {
				if ours(to) && slices.Contains(r.modules, moduleOf(path)) && slices.Contains(r.not, moduleOf(to)) {
					problems = append(problems, fmt.Sprintf("%s imports %s: %s", path, to, r.text))
				}
			}
		}
	}
	for _, from := range smallProgram {
		for to := range g.reach(join(from)) {
			if r := ruleOf(to); ours(to) && !isEngine(r) && (r == nil || !slices.Contains([]string{"root", "driver", "internal", "eventhub", "pgstore"}, r.group)) {
				problems = append(problems, fmt.Sprintf("%s imports %s: a program with the root, eventhub and pgstore compiles nothing else of ours but driver, stamp and internal/", join(from), to))
			}
		}
	}
	for to, chain := range g.reach(join("cmd/sluice/demo")) {
		if n := g[to]; !ours(to) && (n == nil || !n.standard) && !isBelow(to, firstDemoModules) {
			problems = append(problems, fmt.Sprintf("%s imports %s%s: the first demo compiles few other modules, so that it runs within a minute: do without, or add it to rules.go", join("cmd/sluice/demo"), to, chainText(chain)))
		}
	}
	if modules := g.libraryModules(); len(modules) > maxLibraryModules {
		problems = append(problems, fmt.Sprintf("the library imports from %d modules, at most %d: %s", len(modules), maxLibraryModules, strings.Join(modules, " ")))
	}
	slices.Sort(problems)
	return slices.Compact(problems)
}

// isBelow reports whether a path is one of some modules, or lies below it.
func isBelow(path string, modules []string) bool {
	return slices.ContainsFunc(modules, func(m string) bool { return path == m || strings.HasPrefix(path, m+"/") })
}

// isEngine reports whether a rule is of the engine's rooms.
func isEngine(r *rule) bool {
	return r != nil && slices.Contains([]string{"engine", "partition", "below engine"}, r.group)
}

// forbids reports whether a package of the rule's group must not import another.
func (r *rule) forbids(from, to string, n *node) bool {
	if !ours(to) {
		return r.standardOnly && (n == nil || !n.standard)
	}
	other := ruleOf(to)
	if isEngine(other) && !isEngine(r) {
		return false // through the root; see check
	}
	if other == nil || other.group == r.group && !strings.HasPrefix(r.group, "below") {
		return false // a package in no group is reported by itself
	}
	proof := slices.Contains([]string{"proof", "proof of modules", "suite", "suites", "autoscaletest"}, other.group)
	for _, may := range r.may {
		switch may {
		case other.group, "any":
			return false
		case "any of the library":
			return moduleOf(to) != "library"
		case "any but proof":
			return proof
		}
	}
	return from != to
}

// reach returns what a package imports outside of tests, directly or not, with
// a shortest chain of the packages between the two. It does not look into
// packages that are not ours: the import that leads to them is in the result.
func (g graph) reach(from string) map[string][]string {
	chains := map[string][]string{}
	for queue := []string{from}; len(queue) > 0; queue = queue[1:] {
		if g[queue[0]] == nil || !ours(queue[0]) {
			continue
		}
		for _, to := range g[queue[0]].imports {
			if _, known := chains[to]; known || to == from {
				continue
			}
			chains[to] = append(slices.Clone(chains[queue[0]]), to)
			queue = append(queue, to)
		}
	}
	for to, chain := range chains {
		chains[to] = chain[:len(chain)-1]
	}
	return chains
}

func chainText(chain []string) string {
	if len(chain) == 0 {
		return ""
	}
	return " (through " + strings.Join(chain, ", ") + ")"
}

func checkGoMod(name, text string) []string {
	var problems []string
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "//")
		for field := range strings.FieldsSeq(line) {
			if isBelow(field, forbiddenModules[name]) {
				problems = append(problems, fmt.Sprintf("%s names %s: proof/imports/rules.go says why it must not", name, field))
			}
		}
	}
	return problems
}

func ours(path string) bool { return path == module || strings.HasPrefix(path, module+"/") }

func join(below string) string { return strings.TrimSuffix(module+"/"+below, "/") }

func moduleOf(path string) string {
	for _, name := range []string{"autoscale", "cmd/sluice", "emulator", "internal/config", "pipeline", "proof", "sluiceotel"} {
		if path == join(name) || strings.HasPrefix(path, join(name)+"/") {
			return name
		}
	}
	return "library"
}

// ruleOf returns the rule of a package's group, nil if it is in none.
func ruleOf(path string) *rule {
	var found *rule
	longest := -1
	for i, r := range rules {
		for _, pattern := range r.paths {
			tree, isTree := strings.CutSuffix(pattern, "/...")
			matches := path == join(tree) || isTree && strings.HasPrefix(path, join(tree)+"/")
			if !isTree && matches {
				return &rules[i]
			}
			if matches && len(tree) > longest {
				found, longest = &rules[i], len(tree)
			}
		}
	}
	return found
}
