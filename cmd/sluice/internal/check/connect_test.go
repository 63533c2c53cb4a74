package check

import (
	"context"
	"crypto/tls"
	"database/sql"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	_ "modernc.org/sqlite"

	"github.com/sluice-go/sluice/cmd/sluice/internal/checkpoint"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/internal/selfsigned"
	"github.com/sluice-go/sluice/pipeline"
)

const (
	file = `source: {eventhub: {connection: "${HUB}", hub: flights}}
partitions: ${PARTITIONS:-all}
database: ${DB}
target: {insert: {table: flights, create: true, columns: {n: sequence}}}
`
	toHTTP = `source: {eventhub: {connection: "${HUB}", hub: flights}}
partitions: all
leases: {sql: "${DB}"}
target: {http: {url: "${URL}"}}
`
	secret = "dG9wc2VjcmV0a2V5"
)

// parse reads a file with variables.
func parse(t *testing.T, text string, variables map[string]string) (*pipeline.File, error) {
	t.Helper()
	return pipeline.ParseFile("p.yaml", []byte(text), func(name string) (string, bool) { v, ok := variables[name]; return v, ok })
}

// examined examines a file that is valid.
func examined(t *testing.T, e Examiner, text string, variables map[string]string) List {
	t.Helper()
	f, err := parse(t, text, variables)
	if err != nil {
		t.Fatal(err)
	}
	list := e.Examine(t.Context(), f.Path, f.Stages)
	for _, f := range list {
		text := f.Thing + f.Found + f.Next
		if strings.Contains(text, secret) || variables["KEY"] != "" && strings.Contains(text, variables["KEY"]) || strings.Contains(text, "\n") {
			t.Errorf("a secret, or more than one line: %+v", f)
		}
		if f.State == Failed && f.Next == "" {
			t.Errorf("no next step: %+v", f)
		}
	}
	return list
}

// openPipeline opens the pipeline as its first start does, which makes Sluice's tables.
func openPipeline(t *testing.T, variables map[string]string) *pipeline.Parts {
	t.Helper()
	return openFile(t, file, variables)
}

func openFile(t *testing.T, text string, variables map[string]string) *pipeline.Parts {
	t.Helper()
	f, err := parse(t, text, variables)
	if err != nil {
		t.Fatal(err)
	}
	parts, err := f.Stages[0].Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return parts
}

// want checks that a finding is in the list, with parts of its text.
func want(t *testing.T, list List, check string, state State, parts ...string) {
	t.Helper()
	if !slices.ContainsFunc(list, func(f Finding) bool {
		for _, part := range parts {
			if !strings.Contains(f.Thing+": "+f.Found+" → "+f.Next, part) {
				return false
			}
		}
		return f.Check == check && f.State == state
	}) {
		t.Errorf("no %s %s %q in %+v", state, check, parts, list)
	}
}

// flightsHub starts a hub with two partitions, of which clients need the key, and returns its
// connection string.
func flightsHub(t *testing.T) string {
	t.Helper()
	srv, err := emulator.Start([]emulator.Hub{{Name: "flights", Partitions: 2}}, &emulator.Config{Keys: []emulator.Key{{Name: "app", Secret: secret}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { srv.Close() })
	return srv.ConnectionString()
}

// absent is an address at which nobody listens: no system gives its port to a program that asks for
// any.
const absent = "127.0.0.1:1"

// patient is an examiner for servers on a busy machine: each connection to Babelfish costs it
// seconds.
var patient = Examiner{Limit: time.Minute}

func TestBeforeTheFirstStart(t *testing.T) {
	dir := t.TempDir()
	list := examined(t, patient, file, map[string]string{"HUB": flightsHub(t), "DB": "sqlite:" + filepath.Join(dir, "f.db")})
	want(t, list, "source", OK, "flights answers: it has 2 partitions")
	want(t, list, "database", OK)
	want(t, list, "tables", OK, "the first start creates them")
	want(t, list, "rights", OK, "create files in the database's directory")
	if list.Worst() != OK {
		t.Errorf("findings %+v", list)
	}
	if made, err := os.ReadDir(dir); err != nil || len(made) > 0 {
		t.Errorf("it made %v, %v", made, err)
	}
}

func TestOwners(t *testing.T) {
	variables := map[string]string{"HUB": flightsHub(t), "DB": "sqlite:" + filepath.Join(t.TempDir(), "f.db")}
	parts := openPipeline(t, variables)
	defer parts.Close(t.Context())
	list := examined(t, patient, file, variables)
	want(t, list, "tables", OK, "as this program makes them")
	want(t, list, "owners", OK, "no consumer has started yet")
	lease, err := parts.Leases.Acquire(t.Context(), parts.Group, "1", "vm-7", 30*time.Second, 0)
	if err != nil {
		t.Fatal(err)
	}
	list = examined(t, patient, file, variables)
	want(t, list, "owners", OK, "vm-7 owns partition 1, and renewed each lease at most ")
	want(t, list, "owners", Warning, "without an owner: partition 0", "start another process")
	want(t, list, "lag", OK, "0")
	want(t, list, "dead letters", OK, "none")
	if err := parts.Leases.Renew(t.Context(), lease, 30*time.Second); err != nil {
		t.Errorf("the lease was disturbed: %v", err)
	}
}

func TestFailures(t *testing.T) {
	right := flightsHub(t)
	database := func() string { return "sqlite:" + filepath.Join(t.TempDir(), "f.db") }
	down := "postgres://app:" + secret + "@" + absent + "/flights"
	for _, c := range []struct {
		name, text string
		variables  map[string]string
		check      string
		state      State
		parts      []string
	}{
		{"missing hub", strings.Replace(file, "hub: flights", "hub: flihgts", 1), map[string]string{"HUB": right, "DB": database()}, "source", Failed, []string{"p.yaml:1:", "not found"}},
		{"wrong key", file, map[string]string{"HUB": strings.Replace(right, secret, "bm90IHRoaXMgb25l", 1), "DB": database()}, "source", Failed, []string{"not authorised"}},
		{"hub down", file, map[string]string{"HUB": "Endpoint=sb://" + absent + ";SharedAccessKeyName=app;SharedAccessKey=" + secret + ";UseDevelopmentEmulator=true", "DB": database()}, "source", Failed, []string{absent}},
		{"database down", file, map[string]string{"HUB": right, "DB": down}, "database", Failed, []string{"p.yaml:3:", absent}},
		{"no such directory", file, map[string]string{"HUB": right, "DB": "sqlite:/nowhere/f.db"}, "rights", Failed, []string{"/nowhere", "create the directory"}},
		{"more partitions than there are", file, map[string]string{"HUB": right, "DB": database(), "PARTITIONS": "3"}, "source", Warning, []string{"has 2 partitions, and the file takes 3", "balanced"}},
		{"fewer partitions", file, map[string]string{"HUB": right, "DB": database(), "PARTITIONS": "1"}, "source", OK, []string{"each process takes 1"}},
		{"endpoint down", toHTTP, map[string]string{"HUB": right, "DB": database(), "URL": "http://" + absent}, "target", Failed, []string{absent}},
	} {
		t.Run(c.name, func(t *testing.T) {
			want(t, examined(t, patient, c.text, c.variables), c.check, c.state, c.parts...)
		})
	}
}

// A server that takes connections and never answers holds nothing up for longer than the bound.
func TestSilentServers(t *testing.T) {
	need.RealTime(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() // nobody accepts: the system does
	at := l.Addr().String()
	began := time.Now()
	list := examined(t, Examiner{Limit: time.Second}, file, map[string]string{
		"HUB": "Endpoint=sb://" + at + ";SharedAccessKeyName=app;SharedAccessKey=" + secret + ";UseDevelopmentEmulator=true",
		"DB":  "postgres://app:" + secret + "@" + at + "/flights",
	})
	want(t, list, "source", Failed, "no answer within 1s")
	want(t, list, "database", Failed, "no answer within 1s")
	if took := time.Since(began); took > time.Second+grace+30*time.Second { // the machine may be slow
		t.Errorf("it took %v", took)
	}
}

// A check that ignores the end of its time is left behind, and says so. The command ends within 15
// seconds.
func TestCheckThatDoesNotReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stage{Examiner: Examiner{Limit: defaultLimit}, name: "p", targets: new(Targets)}
		began := time.Now()
		got := s.check(t.Context(), part{"stuck", func(context.Context) List {
			time.Sleep(time.Hour) // in the bubble
			return nil
		}})
		if len(got) != 1 || got[0].State != Failed || got[0].Check != "stuck" || got[0].Stage != "p" || !strings.Contains(got[0].Found, "no answer within 10s") {
			t.Errorf("findings %+v", got)
		}
		if took := time.Since(began) + closingWithin; took > 15*time.Second {
			t.Errorf("it took %v", took)
		}
		time.Sleep(time.Hour) // until the check has ended
	})
}

func TestNewerSchema(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.db")
	variables := map[string]string{"HUB": flightsHub(t), "DB": "sqlite:" + path}
	if err := openPipeline(t, variables).Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, c := range []struct {
		version, oldest int
		check           string
		state           State
		text            string
	}{
		{99, 99, "database", Failed, "version 99"},
		{99, 1, "tables", Warning, "can still use"},
		{1, 1, "tables", OK, "the next start brings them to"},
	} {
		if _, err := db.Exec("UPDATE sluice_schema SET version = ?, oldest_compatible = ? WHERE component = 'store'", c.version, c.oldest); err != nil {
			t.Fatal(err)
		}
		want(t, examined(t, patient, file, variables), c.check, c.state, c.text)
	}
	var version int
	if err := db.QueryRow("SELECT version FROM sluice_schema WHERE component = 'store'").Scan(&version); err != nil || version != 1 {
		t.Errorf("the tables were brought to version %d, %v", version, err)
	}
}

func TestCertificatesAndClocks(t *testing.T) {
	variables := map[string]string{"HUB": flightsHub(t), "DB": "sqlite:" + filepath.Join(t.TempDir(), "f.db")}
	for _, c := range []struct {
		name  string
		ends  time.Duration // of the certificate, from now
		ahead time.Duration // this machine's clock
		check string
		state State
		text  string
	}{
		{"valid", 90 * 24 * time.Hour, 0, "certificate", OK, "valid until"},
		{"near its end", 3 * 24 * time.Hour, 0, "certificate", Warning, "in 2 days"},
		{"expired", -time.Hour, 0, "certificate", Failed, "expired at"},
		{"expired by this machine's clock", time.Hour, 2 * time.Hour, "certificate", Failed, "correct this machine's clock"},
		{"same time", 90 * 24 * time.Hour, 0, "clock", OK, "differs by"},
		{"a minute ahead", 90 * 24 * time.Hour, time.Minute, "clock", Warning, "a third of a lease (30s)"},
		{"an hour behind", 90 * 24 * time.Hour, -time.Hour, "clock", Failed, "tokens are refused"},
	} {
		t.Run(c.name, func(t *testing.T) {
			certificate, err := selfsigned.New(&selfsigned.Config{CommonName: "receiver", Hosts: []string{"127.0.0.1"}, NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(c.ends)})
			if err != nil {
				t.Fatal(err)
			}
			srv := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			srv.TLS = &tls.Config{Certificates: []tls.Certificate{certificate.Certificate}, MinVersion: tls.VersionTLS12}
			srv.StartTLS()
			defer srv.Close()
			variables["URL"] = srv.URL
			list := examined(t, Examiner{Limit: patient.Limit, Now: func() time.Time { return time.Now().Add(c.ahead) }}, toHTTP, variables)
			want(t, list, c.check, c.state, c.text)
			want(t, list, "endpoint", Failed) // nobody trusts the certificate
		})
	}
}

func TestPositions(t *testing.T) {
	f, err := parse(t, file, map[string]string{"HUB": flightsHub(t), "DB": "sqlite:f.db"})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	s := newStage(Examiner{Now: func() time.Time { return now }}, "p.yaml", f.Stages[0], true)
	at := func(n int64) driver.Position { return driver.Position{Sequence: n} }
	for _, c := range []struct {
		name  string
		row   checkpoint.Row
		state State
		text  string // empty: nothing is wrong
	}{
		{"done", checkpoint.Row{Begun: true, Position: at(199), First: 100, End: 199}, OK, ""},
		{"not begun", checkpoint.Row{First: 100, End: 199, Lag: 100}, OK, ""},
		{"recreated", checkpoint.Row{Begun: true, Recreated: true, Position: at(7), End: 2, Lag: 3}, Failed, "deleted and created again"},
		{"removed unread", checkpoint.Row{Begun: true, Position: at(89), First: 100, End: 199, Lag: 100}, Failed, "removed events 90 to 99"},
		{"next event is the oldest", checkpoint.Row{Begun: true, Position: at(99), First: 100, End: 199, Lag: 100}, Warning, "retention is near"},
		{"just near", checkpoint.Row{Begun: true, Position: at(108), First: 100, End: 199, Lag: 91}, Warning, "retention is near"},
		{"just far", checkpoint.Row{Begun: true, Position: at(109), First: 100, End: 199, Lag: 90}, OK, ""},
		{"nothing was removed yet", checkpoint.Row{Begun: true, Position: at(0), First: 0, End: 199, Lag: 199}, OK, ""},
		{"stuck", checkpoint.Row{Begun: true, Owner: "vm", Position: at(150), First: 100, End: 199, Lag: 49, Updated: now.Add(-6 * time.Minute)}, Warning, "has not moved for 6m0s while 49 events wait"},
		{"moving", checkpoint.Row{Begun: true, Owner: "vm", Position: at(150), First: 100, End: 199, Lag: 49, Updated: now.Add(-4 * time.Minute)}, OK, ""},
	} {
		got, bad := s.position(c.row)
		if bad != (c.text != "") || bad && (got.State != c.state || !strings.Contains(got.Found, c.text) || got.Next == "") {
			t.Errorf("%s: %+v, %v", c.name, got, bad)
		}
	}
	rows := []checkpoint.Row{{Partition: "0", Lag: 3, DeadLetters: 2}, {Partition: "1", Lag: 40, DeadLetters: 1}}
	want(t, s.positions(rows, nil), "lag", OK, "43 events wait, the most in partition 1: 40")
	want(t, List{s.deadLetters(rows)}, "dead letters", Warning, "3 wait", "sluice deadletters list --config p.yaml --stage p")
	want(t, s.positions([]checkpoint.Row{{Lag: -1}}, errors.New("refused")), "lag", Warning, "not known: refused")
}

func TestOfFile(t *testing.T) {
	_, err := parse(t, strings.Replace(file, "partitions:", "partition:", 1), map[string]string{"HUB": "Endpoint=sb://x/;SharedAccessKeyName=a;SharedAccessKey=" + secret})
	list := OfFile(err, "sluice help pipeline")
	want(t, list, "file", Failed, "p.yaml:2:", "partition")
	want(t, list, "variables", Failed, "p.yaml:3:", "DB", "set DB")
	_, err = pipeline.LoadFile("nowhere.yaml")
	want(t, OfFile(err, "sluice help pipeline"), "file", Failed, "nowhere.yaml", "correct the path")
}
