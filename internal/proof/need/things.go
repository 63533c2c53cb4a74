package need

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

// Thing is what tests may need.
type Thing struct {
	Title   string      // for people
	Install string      // the command that installs it, in the root of the repository
	Found   func() bool // whether it is installed
}

// things are known by these names in [Variable] and in the stages of make proof.
var things = map[string]Thing{
	"postgres":      {"PostgreSQL", "scripts/install-postgres", foundPostgres},
	"mariadb":       {"MariaDB", "scripts/install-mariadb", any(set("SLUICE_MYSQL_URL"), program("mariadbd"))},
	"sqlserver":     {"SQL Server or Babelfish", "scripts/install-sqlserver", any(set("SLUICE_SQLSERVER_URL"), set("SLUICE_SQLSERVER_DIR"), file("sqlserver/bin/start-babelfish"))},
	"kafka":         {"Apache Kafka", "scripts/install-kafka", all(file("kafka/versions"), program("java"))},
	"debezium":      {"Debezium with Kafka Connect", "scripts/install-debezium", all(file("debezium/versions"), program("java"))},
	"azurite":       {"Azurite", "scripts/install-azurite", all(file("azurite/versions"), program("node"))},
	"clients":       {"Azure's clients for JavaScript and Python", "scripts/install-interop", file("interop/versions")},
	"java-clients":  {"Azure's clients for Java", "scripts/install-interop-java", file("interop-java/versions")},
	"python-suites": {"the suites of Azure's clients for Python", "scripts/install-interop-python", file("interop-python/versions")},
	"cosmos-server": {"Azure's driver for Cosmos DB", "scripts/install-cosmosdb-server", file("cosmosdb-server/versions")},
	"sqlfluff":      {"sqlfluff", "scripts/install-sqlfluff", file("sqlfluff/versions")},
	"chromium":      {"Chromium with its driver", "scripts/install-chromium", file("chromium/versions")},
	"prometheus":    {"Prometheus with promtool", "scripts/install-prometheus", file("prometheus/prometheus")},
	"kubernetes":    {"a Kubernetes API server and helm", "scripts/install-kubernetes", file("kubernetes/helm")},
	"release":       {"the tools for packages and images", "scripts/install-release-tools", all(file("release/versions"), program("buildah"))},
	"flights":       {"200,000 flight records", "scripts/fetch-flights", file("flights-200k.json")},
	"datasets":      {"public data in packages of npm", "scripts/install-datasets", file("datasets/versions")},
	"attack-tools":  {"strace, ip and nsenter", "scripts/install-attack-tools", all(program("strace"), program("ip"), program("nsenter"))},
}

// Names are the names of all things, sorted.
func Names() []string { return slices.Sorted(maps.Keys(things)) }

// Lookup returns a thing by its name.
func Lookup(name string) (Thing, bool) {
	thing, found := things[name]
	return thing, found
}

func foundPostgres() bool {
	clusters, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb") // the pattern is valid
	return (len(clusters) > 0 || program("initdb")()) && program("pgbouncer")()
}

func set(variable string) func() bool { return func() bool { return os.Getenv(variable) != "" } }

// program finds a program in the PATH, or where Debian keeps servers.
func program(name string) func() bool {
	return func() bool {
		_, err := exec.LookPath(name)
		if err != nil {
			_, err = exec.LookPath("/usr/sbin/" + name)
		}
		return err == nil
	}
}

// file finds a file below the .dev of the repository that the process runs in.
func file(path string) func() bool {
	return func() bool {
		dir, err := os.Getwd()
		for err == nil {
			if _, missing := os.Stat(filepath.Join(dir, ".dev", path)); missing == nil {
				return true
			}
			above := filepath.Dir(dir)
			if above == dir {
				break
			}
			dir = above
		}
		return false
	}
}

func any(conditions ...func() bool) func() bool {
	return func() bool { return slices.ContainsFunc(conditions, func(holds func() bool) bool { return holds() }) }
}

func all(conditions ...func() bool) func() bool {
	return func() bool { return !slices.ContainsFunc(conditions, func(holds func() bool) bool { return !holds() }) }
}
