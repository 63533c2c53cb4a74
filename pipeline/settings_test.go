package pipeline

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/sluicetest"
)

// plainFile is a valid file of five lines, to which the tests add keys.
const plainFile = `source:
  eventhub: {hub: flights, connection: Endpoint=sb://localhost;SharedAccessKeyName=a;SharedAccessKey=b;UseDevelopmentEmulator=true}
partitions: all
database: sqlite:x.db
target: {insert: {table: flights, create: true, columns: {n: sequence}}}
`

// plainSink is plainFile with a target outside the database.
var plainSink = strings.NewReplacer("database: sqlite:x.db", "leases: {sql: sqlite:x.db}", "{insert: {table: flights, create: true, columns: {n: sequence}}}", "{http: {url: http://localhost/}}").Replace(plainFile)

var plainTopic = strings.Replace(plainSink, "{http: {url: http://localhost/}}", "{kafka: {brokers: localhost, topic: next}}", 1)

// settings is a pipeline that runs in memory with the settings of a file.
type settings struct {
	t      *testing.T
	hub    *sluicetest.Hub
	store  *sluicetest.Store
	leases *sluicetest.Leases
	parts  *Parts

	mu   sync.Mutex
	seen []observed
}

type observed struct {
	driver.Observation
	elapsed time.Duration // since the start
}

// flightsCatalog has the table of plainFile.
type flightsCatalog struct{ emptyCatalog }

func (flightsCatalog) columns(context.Context, string) ([]existingColumn, error) {
	return []existingColumn{{name: "n", kind: "INTEGER"}}, nil
}

func inMemory(t *testing.T, file string, partitions int) *settings {
	t.Helper()
	p, err := Parse("p.yaml", []byte(file), environment())
	if err != nil {
		t.Fatal(err)
	}
	s := &settings{t: t, hub: sluicetest.NewHub(p.Group, partitions), store: &sluicetest.Store{}, leases: &sluicetest.Leases{}}
	s.parts = &Parts{Group: p.Group, Source: s.hub, Leases: s.leases, pipeline: p, catalog: flightsCatalog{}, store: s.store}
	return s
}

// run runs the pipeline with a handler in place of its target, for a time.
func (s *settings) run(h sluice.Handler[*sluicetest.Tx], while func()) {
	s.t.Helper()
	s.parts.delivery = func(trace.TracerProvider) sluice.Delivery { return sluice.Transactional(s.store, h) }
	c, err := s.parts.Consumer(s.t.Context(), &Options{Observer: s.observer()})
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.consume(c, while); err != nil {
		s.t.Error(err)
	}
}

// observer keeps what is observed, with the time since now.
func (s *settings) observer() observerFunc {
	began := time.Now()
	return func(o driver.Observation) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.seen = append(s.seen, observed{o, time.Since(began)})
	}
}

// pour runs the pipeline with a function that writes events in place of its target.
func (s *settings) pour(write func(context.Context, *sluice.Event) error, while func()) {
	s.t.Helper()
	if err := s.fill(write, while); err != nil {
		s.t.Error(err)
	}
}

// fill is pour that returns why the pipeline has ended.
func (s *settings) fill(write func(context.Context, *sluice.Event) error, while func()) error {
	s.t.Helper()
	sink, err := sluice.Workers(100, write)
	if err != nil {
		s.t.Fatal(err)
	}
	delivery, err := atLeastOnce(s.parts.pipeline, s.parts, sluice.EventAsRecord, sink, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	cfg := s.parts.pipeline.config
	cfg.Partitions = s.parts.pipeline.Partitions
	cfg.Observer = s.observer()
	c, err := sluice.New(s.hub, s.leases, delivery, &cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	return s.consume(c, while)
}

func (s *settings) consume(c *sluice.Consumer, while func()) error {
	ran := make(chan error, 1)
	go func() { ran <- c.Run(s.t.Context()) }()
	while()
	return errors.Join(c.Stop(s.t.Context()), <-ran)
}

// when returns when observations for which is returns true were made, by time since the start.
func (s *settings) when(is func(driver.Observation) bool) (list []time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.seen {
		if is(o.Observation) {
			list = append(list, o.elapsed)
		}
	}
	return list
}

func ofKind(kind driver.ObservationKind) func(driver.Observation) bool {
	return func(o driver.Observation) bool { return o.Kind == kind }
}

func ignore(context.Context, *sluicetest.Tx, sluice.Batch) error { return nil }

func TestAssign(t *testing.T) {
	for keys, want := range map[string][2]time.Duration{ // the last of 32 partitions is acquired between
		"":                                {30 * time.Second, 32 * time.Second},
		"assign: {every: 1s, burst: 32}":  {0, time.Second},
		"assign: {burst: 8}":              {2 * time.Second, 4 * time.Second},
		"assign: {every: 100ms}":          {3 * time.Second, 3200 * time.Millisecond},
		"assign: {every: 10s, burst: 16}": {10 * time.Second, 11 * time.Second},
		"lease: {for: 60s, renew: 20s}\nassign: {every: 20s, burst: 16}": {20 * time.Second, 21 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := inMemory(t, plainFile+keys, 32)
			s.run(ignore, func() { time.Sleep(time.Minute) })
			at := s.when(ofKind(driver.KindAcquired))
			if len(at) != 32 || at[31] < want[0] || at[31] > want[1] {
				t.Errorf("%q: %d partitions after %v, want all between %v", keys, len(at), at, want)
			}
		})
	}
}

func TestPrefetch(t *testing.T) {
	for keys, fits := range map[string]func(most int) bool{
		"":               func(most int) bool { return most > 100 },
		"prefetch: 8KiB": func(most int) bool { return most > 1 && most <= 8 },
	} {
		synctest.Test(t, func(t *testing.T) {
			s := inMemory(t, plainFile+keys, 1)
			bodies := make([]string, 1000)
			for i := range bodies {
				bodies[i] = strings.Repeat("x", 1<<10)
			}
			s.hub.Append("0", sluicetest.Bodies(bodies...)...)
			most, handled := 0, 0
			s.run(func(_ context.Context, _ *sluicetest.Tx, b sluice.Batch) error {
				most, handled = max(most, len(b.Events)), handled+len(b.Events)
				return nil
			}, func() { time.Sleep(time.Minute) })
			if handled != len(bodies) || !fits(most) {
				t.Errorf("%q: a batch of %d events, %d in all", keys, most, handled)
			}
		})
	}
}

func TestStallAfter(t *testing.T) {
	for keys, want := range map[string]int{"": 0, "stall_after: 5s": 1} {
		synctest.Test(t, func(t *testing.T) {
			s := inMemory(t, plainFile+keys, 1)
			s.hub.Append("0", sluicetest.Bodies("a")...)
			s.run(func(context.Context, *sluicetest.Tx, sluice.Batch) error {
				time.Sleep(9 * time.Second)
				return nil
			}, func() { time.Sleep(time.Minute) })
			at := s.when(ofKind(driver.KindStalled))
			if len(at) != want || want > 0 && (at[0] < 5*time.Second || at[0] > 8*time.Second) {
				t.Errorf("%q: reported as stalled after %v", keys, at)
			}
		})
	}
}

func TestSilentAfter(t *testing.T) {
	for keys, want := range map[string][2]time.Duration{ // counted from the look before the event, up to a second earlier
		"":                 {19 * time.Second, 27 * time.Second},
		"silent_after: 3s": {2 * time.Second, 5 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := inMemory(t, plainFile+keys, 1)
			s.hub.Append("0", sluicetest.Bodies("a")...)
			var appended time.Duration
			s.run(ignore, func() {
				began := time.Now()
				time.Sleep(time.Minute)
				s.hub.Silence("0")
				s.hub.Append("0", sluicetest.Bodies("b")...)
				appended = time.Since(began)
				time.Sleep(time.Minute)
			})
			silent := new(driver.SilentReaderError)
			at := s.when(func(o driver.Observation) bool { return errors.As(o.Err, &silent) })
			if len(at) != 1 || at[0]-appended < want[0] || at[0]-appended > want[1] {
				t.Errorf("%q: reported after %v, want one report between %v after %v", keys, at, want, appended)
			}
		})
	}
}

func TestRedriveEvery(t *testing.T) {
	for keys, want := range map[string][2]time.Duration{
		"":                                   {0, 2 * time.Second},
		"dead_letters: {redrive_every: 10m}": {time.Minute, 10 * time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := inMemory(t, plainFile+keys, 1)
			s.hub.Append("0", sluicetest.Bodies("a")...)
			repaired := false
			var asked time.Duration
			s.run(func(context.Context, *sluicetest.Tx, sluice.Batch) error {
				if !repaired {
					return driver.Reject(errors.New("not yet"))
				}
				return nil
			}, func() {
				began := time.Now()
				time.Sleep(time.Minute)
				repaired = true
				if n, err := s.store.Redrive(t.Context(), s.parts.Group, sluice.DeadLetterFilter{}, time.Now()); n != 1 || err != nil {
					t.Fatal(n, err)
				}
				asked = time.Since(began)
				time.Sleep(20 * time.Minute)
			})
			at := s.when(ofKind(driver.KindRedriven))
			if len(at) != 1 || at[0]-asked < want[0] || at[0]-asked > want[1] {
				t.Errorf("%q: redriven after %v, want it between %v after %v", keys, at, want, asked)
			}
		})
	}
}

func TestRetryThrottled(t *testing.T) {
	for keys, want := range map[string]time.Duration{"": 2 * time.Second, "retry_throttled: 7s": 7 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			s := inMemory(t, plainTopic+keys, 1)
			s.hub.Append("0", sluicetest.Bodies("a")...)
			var at []time.Time
			s.pour(func(context.Context, *sluice.Event) error {
				at = append(at, time.Now())
				if len(at) == 1 {
					return driver.RetryAfter(errors.New("throttled"), 0)
				}
				return nil
			}, func() { time.Sleep(time.Minute) })
			if len(at) != 2 || at[1].Sub(at[0]) < want || at[1].Sub(at[0]) > want+time.Second {
				t.Errorf("%q: written at %v, want a repetition after %v", keys, at, want)
			}
		})
	}
}

// TestOrder counts how many events of a partition and of a key are written at the same time.
func TestOrder(t *testing.T) {
	for keys, want := range map[string]struct{ partition, key bool }{ // are they written one after the other?
		"":                 {false, true},
		"order: key":       {false, true},
		"order: partition": {true, true},
		"order: none":      {false, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := inMemory(t, plainTopic+keys, 1)
			for i := range 40 {
				s.hub.Append("0", &sluice.Event{Key: fmt.Sprint("k", i%4)})
			}
			var mu sync.Mutex
			var all, most, mostOfKey, written int
			ofKey := map[string]int{}
			s.pour(func(_ context.Context, e *sluice.Event) error {
				mu.Lock()
				all++
				ofKey[e.Key]++
				most, mostOfKey = max(most, all), max(mostOfKey, ofKey[e.Key])
				mu.Unlock()
				time.Sleep(100 * time.Millisecond)
				mu.Lock()
				defer mu.Unlock()
				all--
				ofKey[e.Key]--
				written++
				return nil
			}, func() { time.Sleep(time.Minute) })
			if written != 40 || (most == 1) != want.partition || (mostOfKey == 1) != want.key {
				t.Errorf("%q: %d events written, %d at the same time, %d of one key", keys, written, most, mostOfKey)
			}
		})
	}
}

func TestHoldKeys(t *testing.T) {
	for keys, want := range map[string]int{"": 1, "dead_letters: {hold_keys: false}": 1, "dead_letters: {hold_keys: true}": 5} {
		synctest.Test(t, func(t *testing.T) {
			s := inMemory(t, plainSink+keys, 1)
			for i := range 10 {
				s.hub.Append("0", &sluice.Event{Key: fmt.Sprint("k", i%2)})
			}
			s.pour(func(_ context.Context, e *sluice.Event) error {
				if e.Sequence == 0 {
					return driver.Reject(errors.New("refused"))
				}
				return nil
			}, func() { time.Sleep(time.Minute) })
			letters, err := s.store.List(t.Context(), s.parts.Group, sluice.DeadLetterFilter{})
			if err != nil || len(letters) != want {
				t.Errorf("%q: %d dead letters, %v, want %d", keys, len(letters), err, want)
			}
			for _, l := range letters {
				if l.Event.Key != "k0" {
					t.Errorf("%q: %s is a dead letter", keys, l.Event.Key)
				}
			}
		})
	}
}

// Every line names file, line, column and key, and what to do.
func TestSettingsErrors(t *testing.T) {
	for keys, want := range map[string]string{
		"assign: {every: 1ms}":                         `p.yaml:6:10: assign.every: "1ms": write a duration from 10ms to 1h0m0s`,
		"assign: {every: 2h}":                          `p.yaml:6:10: assign.every: "2h": write a duration from 10ms to 1h0m0s`,
		"assign: {burst: 0}":                           `p.yaml:6:10: assign.burst: "0": write a whole number from 1 to 4096`,
		"assign: 32":                                   `p.yaml:6:1: assign: a single value where keys and values should be`,
		"prefetch: 1":                                  `p.yaml:6:1: prefetch: "1": write a number of bytes from 4096 to 1073741824`,
		"fill: {to: 1MB}":                              `p.yaml:6:1: fill.for: is missing`,
		"fill: {for: 1m, to: 8MB}":                     `p.yaml:6:1: fill: to 8000000 bytes: at most prefetch, which is 4194304`,
		"fill: {for: 1us}":                             `p.yaml:6:8: fill.for: "1us": write a duration from 1ms to 24h0m0s`,
		"prefetch: much":                               `p.yaml:6:1: prefetch: "much": write a number of bytes up to 1073741824, such as 4096, 256KiB or 1MB`,
		"stall_after: 1ms":                             `p.yaml:6:1: stall_after: "1ms": write a duration from 100ms to 24h0m0s`,
		"silent_after: soon":                           `p.yaml:6:1: silent_after: "soon": write a duration with its unit, such as 500ms, 30s or 1m30s`,
		"silent_after: 25h":                            `p.yaml:6:1: silent_after: "25h": write a duration from 100ms to 24h0m0s`,
		"dead_letters: {redrive_every: 1ns}":           `p.yaml:6:16: dead_letters.redrive_every: "1ns": write a duration from 10ms to 24h0m0s`,
		"retry_throttled: 2s":                          `p.yaml:6:1: retry_throttled: is for a cosmos, eventhub, servicebus, kafka or http target: remove it, a target in a database has one transaction for each batch`,
		"leases: {}":                                   `p.yaml:6:1: leases: needs blob: without it the leases are in the database of the target`,
		"leases: {sql: sqlite:y.db}":                   `p.yaml:6:10: leases.sql: is for a target outside a database: remove it, the leases of a target in a database are there, unless leases.blob names a container`,
		"leases: {blob: sluice}\nlease: {for: 90s}":    `p.yaml:6:1: leases: lease of 1m30s: Azure Blob Storage grants leases of 15 s to 60 s: set the lease's length between them (30 s is the default): refused`,
		"leases: {blob: 'https://a/c?sig=s'}":          `p.yaml:6:10: leases.blob: holds a secret: put it into an environment variable and write ${BLOB_CONTAINER}, or ${STORAGE_CONNECTION_STRING}`,
		"leases: {blob: {container: c, conection: d}}": `p.yaml:6:31: leases.blob.conection: unknown key, did you mean connection?`,
	} {
		_, err := Parse("p.yaml", []byte(plainFile+keys), environment())
		if err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
	for edit, want := range map[[2]string]string{
		{"partitions: all", "partitions: balanced\nassign: {every: 20s}"}: `p.yaml:4:1: assign: every 20s: with partitions: balanced it must not be above the 10s between two renewals of a lease (lease.renew)`,
		{"sqlite:x.db", "{url: sqlite:x.db, connections: 4}"}:             `p.yaml:4:30: database.connections: is for the server of a database: remove it, SQLite has one connection that writes`,
		{"sqlite:x.db", "{url: postgres://h/d, connections: 0}"}:          `p.yaml:4:33: database.connections: "0": write a whole number from 1 to 1000`,
		{"sqlite:x.db", "{connections: 4}"}:                               `p.yaml:4:1: database.url: is missing`,
		{"sqlite:x.db", "{url: 'postgres://u:secret@h/d'}"}:               `p.yaml:4:12: database.url: holds a password: put it into an environment variable and write ${DATABASE_URL}, or postgres://user:${PASSWORD}@host/database`,
		{"{hub: flights,", "{hub: flights, prefetch: {events: 5001},"}:    `p.yaml:2:39: source.eventhub.prefetch.events: "5001": write a whole number from 1 to 5000`,
		{"{hub: flights,", "{hub: flights, prefetch: {bytes: 1},"}:        `p.yaml:2:39: source.eventhub.prefetch.bytes: "1": write a number of bytes from 4096 to 1073741824`,
		{"{hub: flights,", "{hub: flights, timeout: 1ms,"}:                `p.yaml:2:28: source.eventhub.timeout: "1ms": write a duration from 1s to 10m0s`,
	} {
		_, err := Parse("p.yaml", []byte(strings.Replace(plainFile, edit[0], edit[1], 1)), environment())
		if err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
	for file, want := range map[string]string{
		plainTopic + "retry_throttled: 2h": `p.yaml:6:1: retry_throttled: "2h": write a duration from 1ms to 1h0m0s`,
		plainTopic + "fill: {for: 1m}":     `p.yaml:6:1: fill: is for a target in a database, and for an http target with order: partition: remove it, this target collects its records as its batch says`,
		plainSink + "retry_throttled: 2s":  `p.yaml:6:1: retry_throttled: is for a cosmos, eventhub, servicebus or kafka target: remove it, an http target waits as Retry-After says or as long as retry.min to retry.max`,
	} {
		if _, err := Parse("p.yaml", []byte(file), environment()); err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}

// Settings that are given once for all stages hold for each, unless it has its own.
func TestSharedSettings(t *testing.T) {
	stage := func(hub, more string) string {
		return "    source: {eventhub: {hub: " + hub + "}}\n    target: {insert: {table: t, columns: {n: sequence}}}\n" + more
	}
	f, err := ParseFile("p.yaml", []byte("eventhub: {connection: \"${EVENTHUB_CONNECTION_STRING}\"}\npartitions: all\ndatabase: sqlite:x.db\n"+
		"assign: {burst: 8}\nprefetch: 1MB\nstall_after: 1m\nsilent_after: 5s\nstages:\n  a:\n"+stage("a", "")+"  b:\n"+stage("b", "    assign: {burst: 2}\n    leases: {blob: sluice}\n")), environment())
	if err != nil {
		t.Fatal(err)
	}
	for i, burst := range []int{8, 2} {
		c := f.Stages[i].config
		if c.AssignBurst != burst || c.PrefetchBytes != 1_000_000 || c.StallAfter != time.Minute || c.SilentAfter != 5*time.Second {
			t.Errorf("stage %d: %+v", i, c)
		}
	}
	// A stage with leases of its own keeps the shared database of a target in a database.
	if b := f.Stages[1]; b.storage.leases == nil || b.storage.leases.where != "sluice" || b.storage.database != (sqliteDatabase{"x.db"}) || f.Stages[0].storage.leases != nil {
		t.Errorf("leases %v, database %v", b.storage.leases, b.storage.database)
	}
	if c := f.Stages[1].Connections(); c.Database != "sqlite:x.db" || c.Blob == nil || c.Blob.Container != "sluice" {
		t.Errorf("connections %+v", c)
	}
}
