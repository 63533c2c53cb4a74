package azure_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"

	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/autoscale/azure"
	"github.com/sluice-go/sluice/internal/proof/azurite"
	"github.com/sluice-go/sluice/internal/proof/need"
)

// If the environment names a part of an autoscaler, this binary runs that part, as a
// process of its own.
const (
	partVariable     = "AZURE_TEST_PART" // or "all" parts, or all without the collector: "acting"
	resourceVariable = "AZURE_TEST_RESOURCE"
	tableVariable    = "AZURE_TEST_TABLE"
	accessVariable   = "AZURE_TEST_CONNECTION"
	fileVariable     = "AZURE_TEST_JOURNAL"
)

// chaosFor is how long parts are killed; SLUICE_CHAOS=5m makes it longer.
const chaosFor = 5 * time.Second

// resource is what TestPartsAreKilled scales.
const resource = "workers"

// journal is a target that records each change in one write, so that a change is
// atomic when the process is killed.
type journal string

func (j journal) changes() (list [][3]int, err error) {
	text, err := os.ReadFile(string(j))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for line := range strings.Lines(string(text)) {
		var c [3]int // action, from, to
		if _, err := fmt.Sscanf(line, "%d %d %d\n", &c[0], &c[1], &c[2]); err != nil {
			return nil, fmt.Errorf("line %q: %w", line, err)
		}
		list = append(list, c)
	}
	return list, err
}

func (j journal) Instances(context.Context) (int, error) {
	list, err := j.changes()
	if err != nil || len(list) == 0 {
		return 1, err
	}
	return list[len(list)-1][2], nil
}

func (j journal) Scale(ctx context.Context, to int) error {
	a, ok := autoscale.ActionFrom(ctx)
	if !ok {
		return errors.New("no action")
	}
	f, err := os.OpenFile(string(j), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%d %d %d\n", a.Number, a.From, to)
	return errors.Join(err, f.Close())
}

// wave rises and falls, so that there is always something to do.
func wave(context.Context) (autoscale.Reading, error) {
	step := time.Now().UnixMilli() / 400
	return autoscale.Reading{Value: float64(1 + [...]int{0, 2, 1, 4, 6, 3}[step%6])}, nil
}

// follow is a rule that wants as many instances as the metric's value.
func follow(s autoscale.Situation) autoscale.Proposal {
	w := s.Windows["wave"]
	if w == nil {
		return autoscale.Proposal{Instances: s.Instances, Reason: "nothing is known"}
	}
	return autoscale.Proposal{Instances: int(w.All().Newest()), Reason: "so the wave says"}
}

// fresh is the age up to which a value counts: on a busy machine a point takes long
// from the collector to the logic.
const fresh = 5 * time.Second

func workers(name string) *autoscale.Resource {
	return &autoscale.Resource{Name: name, Metrics: []string{"wave"}, Rule: autoscale.RuleFunc(follow),
		Limits: autoscale.Limits{Max: 9, CooldownUp: -1, CooldownDown: -1, MinPoints: 1, Window: fresh, StaleAfter: fresh, Interval: 50 * time.Millisecond}}
}

// part runs one part until the process is killed.
func part(name string) error {
	ctx := context.Background()
	cfg := &azure.Config{Connection: os.Getenv(accessVariable), Table: os.Getenv(tableVariable), Lock: time.Second, Poll: 50 * time.Millisecond}
	store, err := azure.OpenStore(ctx, cfg)
	if err != nil {
		return err
	}
	r := workers(os.Getenv(resourceVariable))
	queues, err := openQueues(ctx, r.Name, cfg)
	if err != nil {
		return err
	}
	sources := map[string]autoscale.Source{"wave": autoscale.SourceFunc(wave)}
	every := 100 * time.Millisecond
	if name == "all" { // there are several
		every *= 5
	}
	collector := autoscale.NewCollector(r.Name, sources, queues.Metrics, &autoscale.CollectorConfig{Interval: every})
	logic, err := autoscale.NewLogic(r, store, queues, &autoscale.LogicConfig{ResendAfter: 500 * time.Millisecond})
	if err != nil {
		return err
	}
	scaler, err := autoscale.NewScaler(r, journal(os.Getenv(fileVariable)), store, queues, &autoscale.ScalerConfig{Interval: 200 * time.Millisecond})
	if err != nil {
		return err
	}
	parts := map[string][]autoscale.Part{"collector": {collector}, "logic": {logic}, "scaler": {scaler}, "acting": {logic, scaler}, "all": {collector, logic, scaler}}
	return autoscale.RunAll(ctx, parts[name]...)
}

// openQueues opens the queues of a resource.
func openQueues(ctx context.Context, resource string, cfg *azure.Config) (q autoscale.Queues, err error) {
	open := func(name string) autoscale.Queue {
		queue, failed := azure.OpenQueue(ctx, azure.QueuePrefix(resource)+name, cfg)
		err = errors.Join(err, failed)
		return queue
	}
	return autoscale.Queues{Metrics: open(autoscale.MetricsQueue), Actions: open(autoscale.ActionsQueue), Reports: open(autoscale.ReportsQueue)}, err
}

// troupe runs the parts as processes.
type troupe struct {
	*testing.T
	env     []string
	running map[string]*exec.Cmd
	output  *os.File
}

func (p *troupe) start(name string) {
	p.Helper()
	need.RealTime(p)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), p.env...), partVariable+"="+name)
	cmd.Stdout, cmd.Stderr = p.output, p.output
	if err := cmd.Start(); err != nil {
		p.Fatal(err)
	}
	p.running[name] = cmd
}

func (p *troupe) kill(name string) {
	p.Helper()
	if err := p.running[name].Process.Kill(); err != nil {
		p.Errorf("%s had ended by itself: %v", name, err)
	}
	_ = p.running[name].Wait()
}

// TestPartsAreKilled: collector, logic and scaler are three processes, each of which is
// killed repeatedly. No action is lost, none is carried out twice, and all are in the
// log.
func TestPartsAreKilled(t *testing.T) {
	need.Azurite(t)
	need.RealTime(t)
	dir := t.TempDir()
	output, err := os.Create(filepath.Join(dir, "output"))
	if err != nil {
		t.Fatal(err)
	}
	defer output.Close()
	file := journal(filepath.Join(dir, "journal"))
	table := fmt.Sprintf("Scaling%d", names.Add(1))
	p := &troupe{T: t, output: output, running: map[string]*exec.Cmd{},
		env: []string{resourceVariable + "=" + resource, tableVariable + "=" + table, accessVariable + "=" + azurite.Connection(t), fileVariable + "=" + string(file)}}
	parts := []string{"collector", "logic", "scaler"}
	for _, name := range parts {
		p.start(name)
	}
	defer func() {
		for _, cmd := range p.running {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}()

	lasting := chaosFor
	if text := os.Getenv("SLUICE_CHAOS"); text != "" {
		if lasting, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	random := need.Rand(t)
	changes := func() int {
		done, err := file.changes()
		if err != nil {
			t.Fatal(err)
		}
		return len(done)
	}
	// On a busy machine a part takes long to start its work: if nothing has changed
	// for a while, the kills are less frequent.
	const quick = 100 * time.Millisecond
	kills, done, idle, pause := 0, 0, 0, quick
	began := time.Now()
	for ; time.Since(began) < lasting || done < 5 && time.Since(began) < 5*time.Minute; kills++ {
		next := time.NewTimer(pause + time.Duration(random.Int64N(int64(4*pause))))
		<-next.C
		if n := changes(); n > done {
			done, idle, pause = n, 0, max(pause/2, quick)
		} else if idle++; idle%8 == 0 {
			pause *= 2
		}
		name := parts[random.IntN(len(parts))]
		p.kill(name)
		p.start(name)
	}
	// Actions in progress complete.
	p.kill("collector")
	delete(p.running, "collector")
	store := settled(t, table, resource, output.Name())
	judge(t, store, resource, file, kills)
}

// settled waits until no action of a resource is in progress, and returns the store.
func settled(t *testing.T, table, resource, output string) *azure.Store {
	t.Helper()
	store, err := azure.OpenStore(t.Context(), &azure.Config{Connection: azurite.Connection(t), Table: table})
	if err != nil {
		t.Fatal(err)
	}
	metrics, err := azqueue.NewQueueClientFromConnectionString(azurite.Connection(t), azure.QueuePrefix(resource)+autoscale.MetricsQueue, nil)
	if err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(3 * time.Minute); ; <-tick.C {
		// The queue first: what its last message has led to is in the state when the message is
		// deleted.
		left, err := metrics.GetProperties(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		m, err := store.Load(t.Context(), resource)
		if err != nil {
			t.Fatal(err)
		}
		if m.Pending == nil && *left.ApproximateMessagesCount == 0 && time.Since(m.Windows["wave"].Since) > fresh {
			return store
		}
		if time.Now().After(end) {
			text, _ := os.ReadFile(output)
			t.Fatalf("action %+v of %s does not come to its end; the parts say: %s", m.Pending, resource, text)
		}
	}
}

// judge compares the log with what the target did.
func judge(t *testing.T, store *azure.Store, resource string, file journal, kills int) {
	t.Helper()
	log, err := store.Records(t.Context(), resource, time.Time{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	done, err := file.changes()
	if err != nil {
		t.Fatal(err)
	}
	decided, outcomes := map[int64]autoscale.Record{}, map[int64]autoscale.Record{}
	for i, r := range log {
		if r.Sequence != int64(i+1) {
			t.Fatalf("record %d of the log is number %d", i+1, r.Sequence)
		}
		switch r.Kind {
		case autoscale.Up, autoscale.Down:
			if _, twice := decided[r.Action]; twice || r.Action != int64(len(decided)+1) {
				t.Errorf("action %d is decided as the %d.", r.Action, len(decided)+1)
			}
			decided[r.Action] = r
		case autoscale.ActionSucceeded, autoscale.ActionFailed:
			if _, twice := outcomes[r.Action]; twice {
				t.Errorf("action %d has two outcomes", r.Action)
			}
			outcomes[r.Action] = r
			if r.Kind == autoscale.ActionFailed {
				t.Errorf("action %d was given up: %s", r.Action, r.Reason)
			}
		}
	}
	at := 1
	for i, c := range done {
		action, from, to := int64(c[0]), c[1], c[2]
		r, known := decided[action]
		if !known || r.Instances != from || r.Wanted != to || from != at {
			t.Errorf("change %d, from %d to %d by action %d, where there were %d; decided was %+v", i, from, to, action, at, r)
		}
		if i > 0 && action <= int64(done[i-1][0]) {
			t.Errorf("action %d was carried out after action %d", action, done[i-1][0])
		}
		at = to
	}
	if len(decided) != len(outcomes) || len(decided) != len(done) || len(done) < 5 {
		t.Errorf("%d actions decided, %d with an outcome, %d carried out", len(decided), len(outcomes), len(done))
	}
	t.Logf("%d kills, %d records, %d actions", kills, len(log), len(done))
}
