//go:build linux

package attack

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// TruncationReport is the result of an attack by unclean elections.
type TruncationReport struct {
	Lost     int64 // numbers that the log has lost after they were done, in all rounds
	Line     string
	Events   int // rows, those of events that the log has lost included
	Findings []string
	Broken   bool // one of them is about an effect that is missing or there too often
	Took     time.Duration
}

func (r *TruncationReport) find(format string, args ...any) {
	if len(r.Findings) < mostFindings {
		r.Findings = append(r.Findings, fmt.Sprintf(format, args...))
	}
}

// breach adds a finding about an effect that is missing or there too often.
func (r *TruncationReport) breach(format string, args ...any) {
	r.Broken = true
	r.find(format, args...)
}

// String is the report in a line.
func (r *TruncationReport) String() string {
	return fmt.Sprintf("the log lost %d numbers that were done, %d rows, %d findings, in %v; last line about a loss: %s", r.Lost, r.Events, len(r.Findings), r.Took.Round(time.Second), r.Line)
}

// truncation is a topic on a cluster of Kafka, of which partition 0 loses its end again and again:
// what was written while one of its two replicas was paused, when that one is elected. Two
// pipelines read it: one has read what is lost, and must report it; the other has not, and must not
// notice.
type truncation struct {
	*TruncationReport
	world *world
	*cluster
	load   *load
	next   int64 // number of a record
	phase  int
	events map[string]int // effects that there must be of events, by table
	early  *process
}

const (
	lossyTopic      = "lossy"
	lossyPartitions = 3
	// perPhase is the number of transactions of a phase.
	perPhase = 12
)

// Truncate has a topic lose acknowledged events in a number of unclean elections. The program must
// halt the partition whose checkpoint is in what was lost, report exactly that, handle no other
// event in its place, go on with the other partitions, and go on with this one as its report says.
func Truncate(ctx context.Context, cfg Config, rounds int) (_ *TruncationReport, err error) {
	cfg.Source = Kafka
	cfg.CatchUp = cmp.Or(cfg.CatchUp, 3*time.Minute)
	w := &world{Config: cfg, secrets: newCanaries(), host: "127.0.0.1"}
	c := Kafka.make(w).(*cluster)
	c.topic = lossyTopic
	w.source = c
	t := &truncation{TruncationReport: &TruncationReport{}, world: w, cluster: c, load: &load{records: cfg.Records}, events: map[string]int{}}
	defer func() { err = errors.Join(err, w.close()) }()
	if err := t.begin(ctx); err != nil {
		return nil, fmt.Errorf("set up: %w", err)
	}
	began := time.Now()
	for round := range rounds {
		if err := t.round(ctx); err != nil {
			return nil, fmt.Errorf("round %d: %w", round, err)
		}
	}
	if err := end(ctx, t.early, syscall.SIGTERM); err != nil {
		return nil, err
	}
	t.Took = time.Since(began)
	return t.TruncationReport, nil
}

// begin starts the servers and the pipeline that reads everything at once.
func (t *truncation) begin(ctx context.Context) error {
	w := t.world
	if err := os.WriteFile(w.pipeline(), []byte(w.Pipeline), 0o644); err != nil {
		return err
	}
	late := strings.NewReplacer("group: sluice", "group: late", "table: flights", "table: late").Replace(w.Pipeline)
	if err := os.WriteFile(t.late(), []byte(late), 0o644); err != nil {
		return err
	}
	if err := w.buildDatabase(ctx); err != nil {
		return err
	}
	if err := t.cluster.boot(); err != nil {
		return err
	}
	err := t.kafka.CreateTopicOn(ctx, lossyTopic, lossyPartitions, 2, "min.insync.replicas=1")
	if err != nil {
		return err
	}
	if w.clean, err = w.newRoute("commands", false); err != nil {
		return err
	}
	t.early, err = launch(w.Dir, "early", w.env(w.clean), w.Binary, "run", w.pipeline())
	return err
}

func (t *truncation) late() string { return filepath.Join(t.world.Dir, "late.yaml") }

// round writes events, has both pipelines read them, writes others that only one pipeline reads
// before the log loses them, and more.
func (t *truncation) round(ctx context.Context) error {
	kept, err := t.write(ctx)
	if err != nil {
		return err
	}
	t.expect("flights", kept)
	t.expect("late", kept)
	if err := t.catchUpLate(ctx); err != nil {
		return err
	}
	if err := t.done(ctx, "flights"); err != nil {
		return err
	}
	before, err := t.settled(ctx)
	if err != nil {
		return err
	}
	var after []int64
	var lost []*kgo.Record
	err = t.kafka.LoseEnd(ctx, lossyTopic, 0, func() error {
		var err error
		if lost, err = t.write(ctx); err != nil {
			return err
		}
		t.expect("flights", lost)
		if after, err = t.settled(ctx); err != nil {
			return err
		}
		if err := t.done(ctx, "flights"); err != nil {
			return err
		}
		return t.reached(ctx, after)
	})
	if err != nil {
		return err
	}
	t.Lost += after[0] - before[0]
	t.expect("late", slices.DeleteFunc(slices.Clone(lost), func(r *kgo.Record) bool { return r.Partition == 0 }))
	return t.goOn(ctx, before[0], after[0]-1)
}

// goOn writes more events after the log has lost the numbers from first to last, and checks what
// the pipelines do.
func (t *truncation) goOn(ctx context.Context, first, last int64) error {
	fresh, err := t.write(ctx)
	if err != nil {
		return err
	}
	t.expect("late", fresh)
	if err := t.catchUpLate(ctx); err != nil {
		return err
	}
	halted := func(r *kgo.Record) bool { return r.Partition == 0 }
	t.expect("flights", slices.DeleteFunc(slices.Clone(fresh), halted))
	if err := t.done(ctx, "flights"); err != nil {
		return err
	}
	t.reported(ctx, first, last)
	// No event of the partition has taken effect since, although the log has events of these
	// numbers.
	if err := t.compare(ctx, "flights"); err != nil {
		return err
	}
	set, err := launch(t.world.Dir, fmt.Sprintf("set-%d", t.phase), t.world.env(t.world.clean), t.world.Binary,
		"checkpoints", "set", "--config", t.world.pipeline(), "--partition", "0", "--to", fmt.Sprintf("sequence %d", first), "--force")
	if err != nil {
		return err
	}
	if err := set.wait(ctx); err != nil || set.code() != 0 {
		return errors.Join(err, fmt.Errorf("sluice checkpoints set: exit code %d: %s", set.code(), tail(set.stderr())))
	}
	t.expect("flights", slices.DeleteFunc(fresh, func(r *kgo.Record) bool { return !halted(r) }))
	if err := t.done(ctx, "flights"); err != nil {
		return err
	}
	return t.compare(ctx, "flights")
}

// producer returns a client that has its producer id. A broker that was just started may close its
// connections, and a client that got no id gets none any more: then there is another.
func (t *truncation) producer(ctx context.Context) (*kgo.Client, error) {
	for {
		client, err := t.client(t.world.clean.log, kgo.TransactionalID(fmt.Sprintf("phase-%d", t.phase)), kgo.RecordPartitioner(kgo.ManualPartitioner()))
		if err != nil {
			return nil, err
		}
		if _, _, err = client.ProducerID(ctx); err == nil {
			return client, nil
		}
		client.Close()
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return nil, fmt.Errorf("ask for a producer id: %w", err)
		}
	}
}

// write writes transactions, of which every third aborts, and returns the records of the others.
func (t *truncation) write(ctx context.Context) (list []*kgo.Record, err error) {
	t.phase++
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	client, err := t.producer(ctx)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	for n := range perPhase {
		if err := client.BeginTransaction(); err != nil {
			return nil, fmt.Errorf("begin a transaction: %w", err)
		}
		var records []*kgo.Record
		for p := range lossyPartitions {
			for range 1 + n {
				body, err := t.load.record(t.number())
				if err != nil {
					return nil, err
				}
				records = append(records, &kgo.Record{Topic: lossyTopic, Partition: int32(p), Value: body})
			}
		}
		if err := client.ProduceSync(ctx, records...).FirstErr(); err != nil {
			return nil, fmt.Errorf("write: %w", err)
		}
		try := kgo.TryCommit
		if n%3 == 1 {
			try = kgo.TryAbort
		} else {
			list = append(list, records...)
		}
		if err := client.EndTransaction(ctx, try); err != nil {
			return nil, fmt.Errorf("end a transaction: %w", err)
		}
	}
	return list, nil
}

// number is the number of the next record that can be mapped.
func (t *truncation) number() int64 {
	if t.next++; t.next%spoiledEvery == spoiledEvery-1 {
		t.next++
	}
	return t.next
}

// expect adds the effects of records to those that a table must have.
func (t *truncation) expect(table string, records []*kgo.Record) {
	for _, r := range records {
		var f flight
		if err := json.Unmarshal(r.Value, &f); err != nil || f.Delay == nil {
			t.find("record %s cannot be mapped: %v", r.Value, err)
			continue
		}
		t.events[table+" "+effectOf(fmt.Sprint(r.Partition), mapped{r.Offset, *f.Delay, f.Distance, f.Origin})]++
	}
}

// effectOf is an effect as a text.
func effectOf(partition string, m mapped) string { return fmt.Sprintf("%s/%+v", partition, m) }

// settled waits for the end of all transactions, and returns the ends of the partitions.
func (t *truncation) settled(ctx context.Context) (list []int64, err error) {
	if !await(ctx, time.Minute, func() bool { list, err = t.ends(ctx); return err == nil }) {
		return nil, errors.Join(errors.New("transactions do not end"), err)
	}
	return list, nil
}

// done waits until a table has as many rows as it must have.
func (t *truncation) done(ctx context.Context, table string) error {
	want := t.count(table)
	n := 0
	var err error
	if !await(ctx, t.world.CatchUp, func() bool {
		err = t.world.db.QueryRowContext(ctx, "SELECT count(*) FROM "+table).Scan(&n)
		return err == nil && n >= want
	}) {
		return fmt.Errorf("%d rows in %s, want %d: %w: %s", n, table, want, err, tail(t.early.stderr()))
	}
	t.Events = n
	return nil
}

// count is the number of effects that a table must have.
func (t *truncation) count(table string) (n int) {
	for effect, times := range t.events {
		if strings.HasPrefix(effect, table+" ") {
			n += times
		}
	}
	return n
}

// reached waits until the checkpoints are at the ends of the partitions.
func (t *truncation) reached(ctx context.Context, ends []int64) error {
	behind := 0
	if !await(ctx, t.world.CatchUp, func() bool {
		behind = 0
		for p, end := range ends {
			n := 0
			err := t.world.db.QueryRowContext(ctx, "SELECT count(*) FROM sluice_checkpoints WHERE topic = $1 AND consumer_group = 'sluice' AND partition = $2 AND sequence_number = $3",
				lossyTopic, strconv.Itoa(p), end-1).Scan(&n)
			if err != nil || n != 1 {
				behind++
			}
		}
		return behind == 0
	}) {
		return fmt.Errorf("%d checkpoints do not reach the end of their partition", behind)
	}
	return nil
}

// compare reports effects in a table that it must not have, and those that are missing.
func (t *truncation) compare(ctx context.Context, table string) error {
	has := map[string]int{}
	err := each(ctx, t.world.db, "SELECT hub_partition, sequence_number, delay, distance, coalesce(origin, '') FROM "+table, func(rows *sql.Rows) error {
		var partition string
		var m mapped
		err := rows.Scan(&partition, &m.sequence, &m.delay, &m.distance, &m.origin)
		has[table+" "+effectOf(partition, m)]++
		return err
	})
	if err != nil {
		return err
	}
	for _, effect := range slices.Sorted(maps.Keys(has)) {
		if has[effect] > t.events[effect] {
			t.breach("effect %s is there %d times, want %d", effect, has[effect], t.events[effect])
		}
	}
	for _, effect := range slices.Sorted(maps.Keys(t.events)) {
		if strings.HasPrefix(effect, table+" ") && has[effect] < t.events[effect] {
			t.breach("effect %s is there %d times, want %d", effect, has[effect], t.events[effect])
		}
	}
	return nil
}

var lossLine = regexp.MustCompile(`partition (\d+): the log lost events (\d+) to (\d+)`)

// reported waits for the report of a loss by the first pipeline, and checks all of its reports
// since the last round: they name the same partition and events.
func (t *truncation) reported(ctx context.Context, first, last int64) {
	want := fmt.Sprintf("partition 0: the log lost events %d to %d", first, last)
	if !await(ctx, time.Minute, func() bool { return strings.Contains(t.early.stderr(), want) }) {
		t.find("the program has not reported that %s: %s", want, tail(t.early.stderr()))
		return
	}
	text := t.early.stderr()
	for _, loss := range lossLine.FindAllString(text[strings.Index(text, want):], -1) {
		if loss != want {
			t.find("the program has reported that %s, want: %s", loss, want)
		}
	}
	line := text[:strings.LastIndex(text, want)]
	t.Line, _, _ = strings.Cut(text[strings.LastIndex(line, "\n")+1:], "\n")
}

// catchUpLate runs the second pipeline until it has read everything. It must not report a loss.
func (t *truncation) catchUpLate(ctx context.Context) error {
	p, err := launch(t.world.Dir, fmt.Sprintf("late-%d", t.phase), t.world.env(t.world.clean), t.world.Binary,
		"run", t.late(), "--until-caught-up", "--within", t.world.CatchUp.String())
	if err != nil {
		return err
	}
	if err := p.wait(ctx); err != nil {
		p.end(syscall.SIGKILL)
		<-p.done
		return err
	}
	if p.code() != 0 || lossLine.MatchString(p.stderr()) {
		t.find("a pipeline that has read nothing of what was lost: exit code %d: %s", p.code(), tail(p.stderr()))
	}
	if err := t.done(ctx, "late"); err != nil {
		return err
	}
	return t.compare(ctx, "late")
}
