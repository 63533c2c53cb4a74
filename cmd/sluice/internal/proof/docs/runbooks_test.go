package docs

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/internal/proof/pgtest"
)

// patience is how long a test waits for what must happen.
const patience = 2 * time.Minute

// scene is a hub with a pipeline file, orders.yaml, and the variables that it reads.
type scene struct {
	t   *testing.T
	dir string
	env []string
	hub string
}

// set makes a hub, and a pipeline file of an example with leases that expire soon.
func set(t *testing.T, example, hub string, env ...string) *scene {
	t.Helper()
	path := program.Path(t)
	server, err := emulator.Start([]emulator.Hub{{Name: hub, Partitions: 2, ConsumerGroups: []string{"sluice-audit"}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	text, err := os.ReadFile(filepath.Join(repository(t), "examples", example))
	if err != nil {
		t.Fatal(err)
	}
	s := &scene{t, t.TempDir(), append(os.Environ(), "PATH="+filepath.Dir(path)+string(filepath.ListSeparator)+os.Getenv("PATH"),
		"EVENTHUB_CONNECTION_STRING="+server.ConnectionString()), hub}
	s.env = append(s.env, env...)
	s.write("orders.yaml", strings.Replace(string(text), "\npartitions:", "\nlease: {for: 3s, renew: 1s}\npartitions:", 1))
	return s
}

func (s *scene) write(name, text string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// shell runs commands as one script, with more variables, and returns what they print and whether
// all succeed.
func (s *scene) shell(script string, env ...string) (string, error) {
	cmd := exec.Command("bash", "-euo", "pipefail", "-c", script)
	cmd.Dir, cmd.Env = s.dir, append(s.env[:len(s.env):len(s.env)], env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// must is shell that has to succeed.
func (s *scene) must(script string, env ...string) string {
	s.t.Helper()
	out, err := s.shell(script, env...)
	if err != nil {
		s.t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return out
}

// start starts a command. stop ends it by SIGTERM, after which it must end well, or waits for its
// own end.
func (s *scene) start(args ...string) (stop func(signal bool)) {
	s.t.Helper()
	path := program.Path(s.t)
	var log strings.Builder // read after the end
	cmd := exec.Command(path, args...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = s.dir, s.env, &log, &log
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	end := sync.OnceValue(cmd.Wait)
	s.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = end()
		if s.t.Failed() {
			s.t.Logf("sluice %s:\n%s", strings.Join(args, " "), log.String())
		}
	})
	return func(signal bool) {
		s.t.Helper()
		if signal {
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				s.t.Fatal(err)
			}
		}
		kill := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
		defer kill.Stop()
		if err := end(); err != nil {
			s.t.Fatalf("sluice %s: %v", strings.Join(args, " "), err)
		}
	}
}

// send begins to send n flights, some hundreds a second.
func (s *scene) send(n int) (wait func(signal bool)) {
	s.t.Helper()
	var lines strings.Builder
	for i := range n {
		fmt.Fprintf(&lines, `{"date":"2001/01/14 21:55","delay":1,"distance":%d,"origin":"SAN","destination":"SMF"}`+"\n", i)
	}
	s.write("flights.ndjson", lines.String())
	return s.start("send", "--hub", s.hub, "--rate", "300", "flights.ndjson")
}

// await waits for a condition.
func (s *scene) await(what string, ok func() bool) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for !ok() {
		select {
		case <-look.C:
		case <-ctx.Done():
			s.t.Fatalf("waited for %s in vain", what)
		}
	}
}

// count answers a query for a number, 0 if the table is not there yet.
func (s *scene) count(url, query string) (n int) {
	s.t.Helper()
	conn, err := pgx.Connect(s.t.Context(), url)
	if err != nil {
		s.t.Fatal(err)
	}
	defer conn.Close(s.t.Context())
	if err := conn.QueryRow(s.t.Context(), query).Scan(&n); err != nil && !strings.Contains(err.Error(), "does not exist") {
		s.t.Fatal(err)
	}
	return n
}

const (
	countRows   = "SELECT count(*) FROM flights"
	countEvents = "SELECT count(DISTINCT (hub_partition, sequence_number)) FROM flights"
)

// exactly checks that the table has each of n events once.
func (s *scene) exactly(url string, n int) {
	s.t.Helper()
	if all, different := s.count(url, countRows), s.count(url, countEvents); all != n || different != n {
		s.t.Errorf("%d rows of %d events, want %d", all, different, n)
	}
}

// runbook returns the commands of a section of the runbooks, as the page prints them.
func runbook(t *testing.T, heading string, want int) (blocks []string) {
	t.Helper()
	list, err := Read(repository(t), "docs/runbooks.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range list {
		if b.Heading == heading && b.Language == "sh" {
			blocks = append(blocks, b.Text)
		}
	}
	if len(blocks) != want {
		t.Fatalf("the section %q has %d blocks of commands, and this test carries out %d", heading, len(blocks), want)
	}
	return blocks
}

// failover is a primary with a standby that follows it by streaming replication.
type failover struct {
	primary, standby *pgtest.Server
	url              string // of both: of whichever takes writes
}

func newFailover(t *testing.T) *failover {
	t.Helper()
	f := &failover{primary: pgtest.New(t, nil)}
	url, err := f.primary.CreateDatabase(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	f.standby = f.primary.NewStandby(t)
	f.url = strings.Replace(url, f.primary.Addr(), f.primary.Addr()+","+f.standby.Addr(), 1) + "&target_session_attrs=read-write"
	return f
}

// TestDatabaseFailedOver carries out the runbook "The database failed over": under load the standby
// falls behind, and is promoted without what it lacks.
func TestDatabaseFailedOver(t *testing.T) {
	need.Postgres(t)
	need.RealTime(t)
	t.Parallel()
	blocks := runbook(t, "The database failed over", 3)
	checks, audit := blocks[0], blocks[1]
	const n = 6000
	f := newFailover(t)
	s := set(t, "flights.yaml", "flights", "DATABASE_URL="+f.url)
	stop, sent := s.start("run", "orders.yaml"), s.send(n)
	primary, standby := f.primary.URL("orders"), f.standby.URL("orders")
	s.await("rows on the standby", func() bool { return s.count(standby, countRows) > 300 })
	if err := f.standby.Detach(t.Context()); err != nil {
		t.Fatal(err)
	}
	behind := s.count(primary, countRows)
	s.await("rows that the standby lacks", func() bool { return s.count(primary, countRows) > behind+300 })
	had := s.count(primary, countRows)

	if out, err := s.shell(checks, "DATABASE_URL="+standby); err == nil || !strings.Contains(out, "25006") {
		t.Errorf("check, with the address of a standby: %v\n%s", err, out)
	}
	if err := f.primary.Stop(); err != nil {
		t.Fatal(err)
	}
	kept := s.count(standby, countRows)
	if err := f.standby.Promote(); err != nil {
		t.Fatal(err)
	}
	if kept+200 > had {
		t.Fatalf("of %d rows the failover has kept %d: it has lost too little to show anything", had, kept)
	}
	if out := s.must(checks); !strings.Contains(out, "valid") {
		t.Errorf("check after the failover: %s", out)
	}
	sent(false)
	s.await("all rows", func() bool { return s.count(standby, countEvents) == n })
	if out := s.must(audit); !strings.Contains(out, "Nothing lost, nothing duplicated") {
		t.Errorf("audit: %s", out)
	}
	stop(true)
	s.exactly(standby, n)
	t.Logf("the failover lost at least %d of %d rows that were committed; at the end each of %d events has one", had-kept, had, n)
}

// receiver is the target of an at-least-once pipeline: it has each event once, by its id.
type receiver struct {
	mu     sync.Mutex
	events map[string]bool
}

func (r *receiver) ServeHTTP(_ http.ResponseWriter, request *http.Request) {
	var batch []struct{ Source, ID string }
	if err := json.NewDecoder(request.Body).Decode(&batch); err != nil {
		panic(err) // the connection ends, and the batch comes again
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range batch {
		r.events[e.Source+" "+e.ID] = true
	}
}

func (r *receiver) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.events)
}

// TestTargetLostData carries out the last step of "The database failed over": an at-least-once
// pipeline, whose target has lost data.
func TestTargetLostData(t *testing.T) {
	need.Postgres(t)
	need.RealTime(t)
	t.Parallel()
	goBack := runbook(t, "The database failed over", 3)[2]
	const n = 1000
	target := &receiver{events: map[string]bool{}}
	server := httptest.NewServer(target)
	t.Cleanup(server.Close)
	url, err := pgtest.New(t, nil).CreateDatabase(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	s := set(t, "http.yaml", "flights", "DATABASE_URL="+url, "TARGET_URL="+server.URL)
	s.send(n)(false)
	stop := s.start("run", "orders.yaml")
	s.await("all events", func() bool { return target.count() == n })
	lag := func() (sum int) {
		var rows []struct{ Lag *int }
		if err := json.Unmarshal([]byte(s.must("sluice checkpoints list --json --config orders.yaml")), &rows); err != nil {
			t.Fatal(err)
		}
		for _, r := range rows {
			if sum++; r.Lag != nil {
				sum += *r.Lag - 1
			}
		}
		return sum
	}
	s.await("the checkpoints at the end", func() bool { return lag() == 0 })

	target.mu.Lock()
	for id := range target.events {
		if k, _ := strconv.Atoi(id[strings.LastIndexByte(id, ' ')+1:]); k > 100 {
			delete(target.events, id)
		}
	}
	kept := len(target.events)
	target.mu.Unlock()
	stop(true)
	out := s.must(goBack)
	stop = s.start("run", "orders.yaml")
	s.await("the events that were lost", func() bool { return target.count() == n })
	stop(true)
	t.Logf("the target had kept %d of %d events, and has all of them again after\n%s", kept, n, out)
}

// TestMoveToAnotherDatabase carries out the runbook "Move to another database", while events
// arrive.
func TestMoveToAnotherDatabase(t *testing.T) {
	need.Postgres(t)
	need.RealTime(t)
	t.Parallel()
	blocks := runbook(t, "Move to another database", 4)
	list, dump, lock, look := blocks[0], blocks[1], blocks[2], blocks[3]
	const n = 4000
	before, after := pgtest.New(t, nil), pgtest.New(t, nil)
	from, err := before.CreateDatabase(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	to, err := after.CreateDatabase(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	s := set(t, "flights.yaml", "flights", "DATABASE_URL="+from, "NEW_DATABASE_URL="+to, "OLD_ADMIN_URL="+before.URL("postgres"))
	stop, sent := s.start("run", "orders.yaml"), s.send(n)
	s.await("rows", func() bool { return s.count(from, countRows) > 500 })
	spoiled := `{"distance":1}` + "\n"
	s.write("spoiled.ndjson", strings.Repeat(spoiled, 5))
	s.must("sluice send --hub flights spoiled.ndjson")
	s.await("dead letters", func() bool { return s.count(from, "SELECT count(*) FROM sluice_dead_letters") == 5 })
	stop(true)
	for line := range strings.Lines(s.must(list)) {
		if fields := strings.Fields(line); len(fields) < 2 || fields[0] != "PARTITION" && fields[len(fields)-1] != "-" {
			t.Errorf("a partition has an owner: %s", line)
		}
	}
	s.must(dump)
	forgotten, err := pgx.Connect(t.Context(), from)
	if err != nil {
		t.Fatal(err)
	}
	defer forgotten.Close(context.WithoutCancel(t.Context()))
	s.must(lock)
	if _, err := forgotten.Exec(t.Context(), "DELETE FROM flights"); err == nil {
		t.Error("a connection that existed before still writes to the old database")
	}
	copied := s.count(to, countRows)
	if out := s.must(look); !strings.Contains(out, "valid") || !strings.Contains(out, "Nothing lost, nothing duplicated") {
		t.Errorf("after the copy:\n%s", out)
	}
	if out, err := s.shell("sluice run orders.yaml --until-caught-up --within 10s"); err == nil {
		t.Errorf("a process that was forgotten works on the old database:\n%s", out)
	}
	s.env = append(s.env, "DATABASE_URL="+to)
	stop = s.start("run", "orders.yaml")
	sent(false)
	s.await("all rows", func() bool { return s.count(to, countEvents) == n })
	stop(true)
	s.exactly(to, n)
	if dead := s.count(to, "SELECT count(*) FROM sluice_dead_letters"); dead != 5 {
		t.Errorf("%d dead letters, want 5", dead)
	}
	t.Logf("%d rows were copied; at the end each of %d events has one", copied, n)
}
