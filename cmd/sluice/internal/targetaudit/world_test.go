package targetaudit

import (
	"context"
	"database/sql"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/audit"
	"github.com/sluice-go/sluice/pipeline"
	"github.com/sluice-go/sluice/sluicetest"
)

// world is a log in memory with a pipeline that reads it.
type world struct {
	t        *testing.T
	hub      *sluicetest.Hub
	pipeline *pipeline.Pipeline
	group    sluice.Group
	vars     map[string]string
	cfg      Config
	database string // the file of checkpoints and dead letters
}

// hubSource is a hub in memory in place of the file's source.
type hubSource struct{ *sluicetest.Hub }

func (hubSource) Close(context.Context) error { return nil }
func (hubSource) Group() sluice.Group         { return sluice.Group{} }

// newWorld reads a file without its source, and makes the log.
func newWorld(t *testing.T, file string, env ...string) *world {
	t.Helper()
	database := filepath.Join(t.TempDir(), "state.db")
	vars := map[string]string{"DATABASE_URL": "sqlite:" + database}
	for _, v := range env {
		name, value, _ := strings.Cut(v, "=")
		vars[name] = value
	}
	w := &world{t: t, vars: vars, cfg: Config{RU: 100_000}, database: database}
	w.parse(source + file)
	w.group = w.pipeline.Group
	w.hub = sluicetest.NewHub(w.group, 2)
	return w
}

// source is the beginning of the files.
const source = `source:
  eventhub: {hub: flights, connection: Endpoint=sb://localhost;SharedAccessKeyName=a;SharedAccessKey=b;UseDevelopmentEmulator=true}
  start: earliest
partitions: all
`

// parse reads the file of the pipeline.
func (w *world) parse(file string) {
	w.t.Helper()
	var err error
	if w.pipeline, err = pipeline.Parse("p.yaml", []byte(file), func(name string) (string, bool) { v, ok := w.vars[name]; return v, ok }); err != nil {
		w.t.Fatal(err)
	}
}

// run runs the pipeline until the checkpoint of each partition is that of its last event.
func (w *world) run() {
	t, ctx := w.t, w.t.Context()
	t.Helper()
	parts, err := w.pipeline.Open(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer parts.Close(context.WithoutCancel(ctx))
	consumer, err := parts.Consumer(ctx, &pipeline.Options{Source: w.hub})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- consumer.Run(ctx) }()
	waiting := time.NewTicker(10 * time.Millisecond)
	defer waiting.Stop()
	for {
		list, err := parts.Checkpoints.Read(ctx, w.group)
		if err != nil {
			t.Fatal(err)
		}
		done := 0
		for _, c := range list {
			bounds, err := w.hub.Bounds(ctx, c.Partition)
			if err != nil {
				t.Fatal(err)
			}
			if c.Position.Sequence >= bounds.Last.Sequence {
				done++
			}
		}
		if done == 2 {
			break
		}
		select {
		case <-waiting.C:
		case err := <-ended:
			t.Fatalf("the pipeline has ended: %v", err)
		}
	}
	if err := consumer.Stop(ctx); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// audit audits the pipeline. It must find the given faults, and no others.
func (w *world) audit(faults ...string) *audit.Report {
	w.t.Helper()
	r, err := run(w.t.Context(), w.pipeline, hubSource{w.hub}, w.cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	var found []string
	for _, f := range r.Faults {
		found = append(found, f.String())
	}
	if got, want := strings.Join(found, "\n"), strings.Join(faults, "\n"); got != want {
		w.t.Fatalf("found\n%s\nwant\n%s", got, want)
	}
	return r
}

// says checks a report's headline.
func (w *world) says(r *audit.Report, want string) {
	w.t.Helper()
	if got := r.Headline(); got != want {
		w.t.Errorf("got  %s\nwant %s", got, want)
	}
}

// exec executes statements in a database.
func exec(t *testing.T, database string, statements ...string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+database+"?_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, s := range statements {
		if _, err := db.ExecContext(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}
