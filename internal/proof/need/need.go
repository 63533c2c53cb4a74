// Package need says what a test needs beyond Go: a server, a tool, or the machine's own time.
//
//	func TestRedrive(t *testing.T) {
//		need.Postgres(t)
//		…
//
// Such a test runs where the thing is installed and skips elsewhere, with the command that installs
// it. The environment variable SLUICE_NEED changes that:
//
//	SLUICE_NEED=none              every such test skips: make test
//	SLUICE_NEED=postgres,kafka    a test of these fails without them; one of others skips
//	SLUICE_NEED=all               none skips: a missing thing is a failure
//	SLUICE_NEED=all,-kubernetes   all except these: make proof on a machine without them
//
// A test also states its needs as attributes (see [testing.TB.Attr]), from which make proof knows
// which failures it may repeat: those of tests that depend on a server or on time, never a
// [Verdict].
package need

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Variable is the environment variable that says what is demanded.
const Variable = "SLUICE_NEED"

// The attributes that tests have in the output of go test -json.
const (
	Attribute        = "need"    // a thing's name, or realTime
	VerdictAttribute = "verdict" // see Verdict
)

const realTime = "realtime"

// Postgres is PostgreSQL with PgBouncer.
func Postgres(t testing.TB) { t.Helper(); demand(t, "postgres") }

// MariaDB is a server of MariaDB, or of MySQL at SLUICE_MYSQL_URL.
func MariaDB(t testing.TB) { t.Helper(); demand(t, "mariadb") }

// SQLServer is Babelfish, or the server at SLUICE_SQLSERVER_URL.
func SQLServer(t testing.TB) { t.Helper(); demand(t, "sqlserver") }

// Kafka is Apache Kafka's broker.
func Kafka(t testing.TB) { t.Helper(); demand(t, "kafka") }

// Debezium is its connector for PostgreSQL, with Kafka Connect.
func Debezium(t testing.TB) { t.Helper(); demand(t, "debezium") }

// Azurite is Microsoft's server of Azure Storage.
func Azurite(t testing.TB) { t.Helper(); demand(t, "azurite") }

// Clients are Azure's clients for JavaScript and Python.
func Clients(t testing.TB) { t.Helper(); demand(t, "clients") }

// JavaClients are Azure's clients for Java.
func JavaClients(t testing.TB) { t.Helper(); demand(t, "java-clients") }

// PythonSuites are the test suites of Azure's clients for Python.
func PythonSuites(t testing.TB) { t.Helper(); demand(t, "python-suites") }

// CosmosServer is the npm package of Azure's driver for Cosmos DB.
func CosmosServer(t testing.TB) { t.Helper(); demand(t, "cosmos-server") }

// SQLFluff parses SQL of MySQL and SQL Server.
func SQLFluff(t testing.TB) { t.Helper(); demand(t, "sqlfluff") }

// Chromium is the browser with its driver, and Pebble, a server of ACME.
func Chromium(t testing.TB) { t.Helper(); demand(t, "chromium") }

// Prometheus is the server.
func Prometheus(t testing.TB) { t.Helper(); demand(t, "prometheus") }

// Kubernetes is a kube-apiserver with etcd, and helm, kubectl and kustomize.
func Kubernetes(t testing.TB) { t.Helper(); demand(t, "kubernetes") }

// Release are the tools that make packages and images, and run an image.
func Release(t testing.TB) { t.Helper(); demand(t, "release") }

// Flights are 200,000 flight records, as a file.
func Flights(t testing.TB) { t.Helper(); demand(t, "flights") }

// Datasets are public data, in packages of npm.
func Datasets(t testing.TB) { t.Helper(); demand(t, "datasets") }

// AttackTools are strace, ip and nsenter.
func AttackTools(t testing.TB) { t.Helper(); demand(t, "attack-tools") }

// RealTime marks a test that waits for real time, compares it, or starts processes. Such a test can
// be slow, and a machine that stands still can make it fail, so make test leaves it out, and make
// proof repeats a failure. It skips only where SLUICE_NEED is none.
func RealTime(t testing.TB) {
	t.Helper()
	t.Attr(Attribute, realTime)
	if os.Getenv(Variable) == "none" {
		t.Skip("waits for real time: make proof runs it, and so does go test without " + Variable)
	}
}

// EveryDatabase leaves a test to the soak's stage every-database: it takes minutes, mostly of
// Babelfish, and make proof has the same of faster databases, or a part of it, which less says.
func EveryDatabase(t testing.TB, less string) {
	t.Helper()
	if !InEveryDatabase() {
		t.Skipf("make soak STAGE=every-database runs it, make proof %s", less)
	}
}

// InEveryDatabase reports whether the soak's stage every-database is running.
func InEveryDatabase() bool { return os.Getenv("SLUICE_EVERY_DATABASE") != "" }

// Verdict says that a failure of the test from here on is one of the product's promises: an event
// lost, applied twice or out of order. Such a failure is never repeated.
func Verdict(t testing.TB) {
	t.Helper()
	t.Attr(VerdictAttribute, "true")
}

// demand skips or fails a test that needs a thing.
func demand(t testing.TB, name string) {
	t.Helper()
	t.Attr(Attribute, name)
	if err := Check(os.Getenv(Variable)); err != nil {
		t.Fatal(err)
	}
	thing := things[name]
	wanted, named := Demanded(os.Getenv(Variable), name)
	switch {
	case !wanted && os.Getenv(Variable) == "none":
		t.Skipf("needs %s: run %s, then go test without %s, or make proof", thing.Title, thing.Install, Variable)
	case !wanted:
		t.Skipf("needs %s, which %s=%s leaves out", thing.Title, Variable, os.Getenv(Variable))
	case thing.Found():
	case named:
		t.Fatalf("needs %s, which %s demands: run %s", thing.Title, Variable, thing.Install)
	default:
		t.Skipf("needs %s: run %s", thing.Title, thing.Install)
	}
}

// Demanded reports whether tests of a thing are wanted with this value of [Variable], and whether
// the value demands it, so that they fail where it is missing.
func Demanded(value, name string) (wanted, demanded bool) {
	if value == "" {
		return true, false
	}
	names := strings.Split(value, ",")
	if slices.Contains(names, "-"+name) {
		return false, false
	}
	demanded = slices.Contains(names, "all") || slices.Contains(names, name)
	return demanded, demanded
}

// Check returns an error that names a word of a value of [Variable] that is no thing's name.
func Check(value string) error {
	for word := range strings.SplitSeq(value, ",") {
		name := strings.TrimPrefix(word, "-")
		if _, known := things[name]; !known && name != realTime && !slices.Contains([]string{"", "all", "none"}, word) {
			return fmt.Errorf("%s: %q is unknown; known are all, none, %s and %s", Variable, word, realTime, strings.Join(Names(), ", "))
		}
	}
	return nil
}

// Seed is the seed of a test's random choices: the same in every run, unless SLUICE_SEED is another
// number, as in make soak. It is logged, so that a failure can be repeated.
func Seed(t testing.TB) uint64 {
	t.Helper()
	seed := uint64(1)
	if text := os.Getenv("SLUICE_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("SLUICE_SEED: %q is not a whole number: unset it, or set the number that a failed run printed", text)
		}
	}
	t.Logf("repeat with SLUICE_SEED=%d", seed)
	return seed
}

// Rand draws from [Seed]. It is not safe for concurrent use.
func Rand(t testing.TB) *rand.Rand {
	t.Helper()
	return rand.New(rand.NewPCG(Seed(t), 0))
}
