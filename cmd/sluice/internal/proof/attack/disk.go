//go:build linux

package attack

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	_ "modernc.org/sqlite" // driver sqlite

	"github.com/sluice-go/sluice/cmd/sluice/internal/history"
	"github.com/sluice-go/sluice/eventhub"
	"github.com/sluice-go/sluice/internal/proof/freeport"
)

// DiskConfig configures an attack on a disk.
type DiskConfig struct {
	Binary   string
	Pipeline string
	Records  []json.RawMessage
	Dir      string // for all outputs; it must be empty
	Rounds   int    // number of faults
	Seed     uint64
	Log      func(format string, args ...any) // default none
}

// DiskReport is the result of an attack on a disk.
type DiskReport struct {
	Faults       int    // rounds in which the disk failed
	LogLine      string // the last log line that reported a fault
	Acknowledged int64  // records
	Events       int64
	Rows         int64 // 0 where only the hub was attacked
	DeadLetters  int64
	Findings     []string
	Broken       bool // one of them is about an event that is lost, has one effect too many, or came out of order
	Took         time.Duration
}

// breach adds a finding about an event that is lost, has one effect too many, or came out of order.
func (r *DiskReport) breach(format string, args ...any) {
	r.Broken = true
	r.find(format, args...)
}

func (r *DiskReport) find(format string, args ...any) {
	if len(r.Findings) < mostFindings {
		r.Findings = append(r.Findings, fmt.Sprintf(format, args...))
	}
}

// String is the report in a line.
func (r *DiskReport) String() string {
	return fmt.Sprintf("%d faults, %d records acknowledged, %d events, %d rows, %d dead letters, %d findings, in %v; last log line about the disk: %s",
		r.Faults, r.Acknowledged, r.Events, r.Rows, r.DeadLetters, len(r.Findings), r.Took.Round(time.Second), r.LogLine)
}

// logProgress logs the progress of an attack every five rounds.
func (l *diskCase) logProgress(round int) {
	if round > 0 && round%5 == 0 {
		l.Log("%d of %d rounds, %d records acknowledged", round, l.Rounds, l.Acknowledged)
	}
}

// diskCase is a hub and a consumer, one of them on a disk that fails.
type diskCase struct {
	DiskConfig
	DiskReport
	secrets   *canaries
	load      *load
	random    *rand.Rand
	hub       *process
	hubAddr   string
	processes int
	sent      []sendCall
}

// sendCall is a call of `sluice send`.
type sendCall struct{ first, count, acked int64 }

const (
	diskPartitions = 2
	diskSize       = 256 // MB
	// roomPerRound is the space that a round needs at most.
	roomPerRound = 8 // MB
	sendPerRound = 20_000
)

// newDiskCase makes a case without processes. It must be closed.
func newDiskCase(cfg DiskConfig) (*diskCase, error) {
	if cfg.Log == nil {
		cfg.Log = func(string, ...any) {}
	}
	free, err := freeport.Listen()
	if err != nil {
		return nil, err
	}
	defer free.Close()
	l := &diskCase{DiskConfig: cfg, secrets: newCanaries(), load: &load{records: cfg.Records}, random: rand.New(rand.NewPCG(cfg.Seed, 20)), hubAddr: free.Addr().String()}
	return l, os.WriteFile(l.pipeline(), []byte(cfg.Pipeline), 0o644)
}

func (l *diskCase) pipeline() string { return filepath.Join(l.Dir, "flights.yaml") }
func (l *diskCase) disk() string     { return filepath.Join(l.Dir, "disk") }
func (l *diskCase) trace() string {
	return filepath.Join(l.Dir, fmt.Sprintf("trace-%03d", l.processes))
}

func (l *diskCase) connection() string {
	return "Endpoint=sb://" + l.hubAddr + ";SharedAccessKeyName=" + keyName + ";SharedAccessKey=" + l.secrets.key + ";UseDevelopmentEmulator=true"
}

func (l *diskCase) launch(name string, args ...string) (*process, error) {
	l.processes++
	return launch(l.Dir, fmt.Sprintf("%s-%03d", name, l.processes), []string{
		"EVENTHUB_CONNECTION_STRING=" + l.connection(), "DATABASE_URL=sqlite:" + filepath.Join(l.disk(), "flights.db"),
	}, args...)
}

// serve starts the hub. wrap, if not nil, changes its command line.
func (l *diskCase) serve(ctx context.Context, data string, wrap func(args ...string) []string) (err error) {
	args := []string{l.Binary, "emulator", "serve", "--listen", l.hubAddr, "--hub", fmt.Sprintf("%s=%d", hubName, diskPartitions),
		"--key", keyName + "=" + l.secrets.key}
	if data != "" {
		args = append(args, "--data", data)
	}
	if wrap != nil {
		args = wrap(args...)
	}
	if l.hub, err = l.launch("hub", args...); err != nil {
		return err
	}
	ready := func() bool { return strings.HasPrefix(l.hub.stdout(), "ready ") || l.hub.ended() }
	if !await(ctx, time.Minute, ready) || l.hub.ended() {
		return fmt.Errorf("the hub was not ready within a minute: %s", tail(l.hub.stderr()))
	}
	return nil
}

// end ends a process by a signal.
func end(ctx context.Context, p *process, s os.Signal) error {
	p.end(s)
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return p.wait(ctx)
}

// close ends the processes that still run.
func (l *diskCase) close() {
	if l.hub != nil {
		l.hub.end(syscall.SIGKILL)
		<-l.hub.done
	}
}

// send starts to send records.
func (l *diskCase) send(count int64) (*process, error) {
	path := filepath.Join(l.Dir, "records.ndjson")
	first := l.load.acknowledged()
	if err := l.load.file(path, first, count); err != nil {
		return nil, err
	}
	l.load.advance(count) // each record is sent by one call only
	l.sent = append(l.sent, sendCall{first: first, count: count})
	return l.launch("send", l.Binary, "send", "--hub", hubName, path)
}

// sendUntil sends records repeatedly until a condition holds, and returns the
// `sluice send` that then runs or has just ended.
func (l *diskCase) sendUntil(ctx context.Context, ok func() bool) (*process, error) {
	for range 50 {
		p, err := l.send(sendPerRound)
		if err != nil {
			return nil, err
		}
		await(ctx, time.Minute, func() bool { return ok() || p.ended() })
		if ok() {
			return p, nil
		}
		if all, err := l.sentAll(ctx, p); err != nil || !all {
			return nil, incomplete(p, err)
		}
	}
	return nil, errors.New("the disk did not fail although much was sent")
}

var acknowledgedLine = regexp.MustCompile(`^(\d+) records? acknowledged`)

// sentAll waits for a `sluice send`, and returns whether all its records were
// acknowledged.
func (l *diskCase) sentAll(ctx context.Context, p *process) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if err := p.wait(ctx); err != nil {
		return false, err
	}
	match := acknowledgedLine.FindStringSubmatch(p.stdout())
	if match == nil {
		return false, fmt.Errorf("sluice send printed no number of acknowledged records, but %q: %s", p.stdout(), tail(p.stderr()))
	}
	s := &l.sent[len(l.sent)-1]
	s.acked, _ = strconv.ParseInt(match[1], 10, 64) // digits
	l.Acknowledged += s.acked
	return p.code() == 0 && s.acked == s.count, nil
}

// incomplete is the error of a `sluice send` that has not sent all its records.
func incomplete(p *process, err error) error {
	return fmt.Errorf("sluice send: %w: %s", cmp.Or(err, errors.New("not all records were acknowledged")), tail(p.stderr()))
}

// logged waits until a process has printed a line to standard error, after the
// first past bytes of it, that contains all of the words.
func (l *diskCase) logged(ctx context.Context, p *process, past int, words ...string) bool {
	return await(ctx, 30*time.Second, func() bool { return l.logs(p, past, words...) })
}

// logs reports whether there is such a line.
func (l *diskCase) logs(p *process, past int, words ...string) bool {
	for line := range strings.Lines(p.stderr()[past:]) {
		all := strings.HasSuffix(line, "\n")
		for _, w := range words {
			all = all && strings.Contains(line, w)
		}
		if all {
			l.LogLine = strings.TrimSpace(line)
			return true
		}
	}
	return false
}

// FillHub fills the disk of a hub in every round. In every fourth round the sender
// must give up; in the others space is freed while it retries.
func FillHub(ctx context.Context, cfg DiskConfig) (_ *DiskReport, err error) {
	l, err := newDiskCase(cfg)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	disk, err := mountSmallDisk(l.disk(), diskSize)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, disk.close()) }()
	defer l.close()
	data := filepath.Join(l.disk(), "hub")
	if err := l.serve(ctx, data, nil); err != nil {
		return nil, err
	}
	for round := range cfg.Rounds {
		l.logProgress(round)
		if err := disk.fill(); err != nil {
			return nil, err
		}
		past := len(l.hub.stderr())
		p, err := l.sendUntil(ctx, func() bool { return len(l.hub.stderr()) > past })
		if err != nil {
			return nil, err
		}
		if l.logged(ctx, l.hub, past, "no space left on device", "free space") {
			l.Faults++
		} else {
			l.find("round %d: the hub did not log that its disk is full: %s", round, tail(l.hub.stderr()[past:]))
		}
		patient := round%4 != 0
		if patient {
			if err := disk.free(roomPerRound); err != nil {
				return nil, err
			}
		}
		all, err := l.sentAll(ctx, p)
		switch {
		case err != nil:
			return nil, err
		case all != patient:
			l.find("round %d: all records acknowledged: %v, space was freed: %v: %s", round, all, patient, tail(p.stderr()))
		case !all:
			if err := disk.free(roomPerRound); err != nil {
				return nil, err
			}
			if p, err = l.send(sendPerRound); err == nil {
				all, err = l.sentAll(ctx, p)
			}
			if err != nil || !all {
				return nil, fmt.Errorf("round %d: does not continue after space was freed: %w", round, incomplete(p, err))
			}
		}
	}
	return l.checkHub(ctx, data, began)
}

// FailHubFsync makes fsyncs of a hub fail: one of them, or all from some moment on
// until the hub is started again.
func FailHubFsync(ctx context.Context, cfg DiskConfig) (*DiskReport, error) {
	l, err := newDiskCase(cfg)
	if err != nil {
		return nil, err
	}
	defer l.close()
	began := time.Now()
	data := filepath.Join(l.disk(), "hub")
	if err := l.serve(ctx, data, nil); err != nil {
		return nil, err
	}
	for round := range cfg.Rounds {
		l.logProgress(round)
		if err := end(ctx, l.hub, syscall.SIGTERM); err != nil {
			return nil, err
		}
		when := fmt.Sprint(2 + l.random.IntN(4))
		if round%2 == 0 {
			when += "+"
		}
		var trace string
		err := l.serve(ctx, data, func(args ...string) []string {
			trace = l.trace()
			return failFsync(trace, when, args...)
		})
		all := false
		switch {
		case err == nil:
			if all, err = l.sendWhileFsyncFails(ctx, trace); err != nil {
				return nil, err
			}
		case !l.hub.ended() || l.hub.code() != 1: // it may refuse to start
			return nil, err
		}
		if l.logged(ctx, l.hub, 0, "input/output error") {
			l.Faults++
		} else {
			l.find("round %d: the hub did not log that its disk fails: %s", round, tail(l.hub.stderr()))
		}
		if all {
			continue // it continued by itself
		}
		if err := end(ctx, l.hub, syscall.SIGKILL); err != nil {
			return nil, err
		}
		if err := l.serve(ctx, data, nil); err != nil {
			return nil, err
		}
		p, err := l.send(sendPerRound)
		if err == nil {
			all, err = l.sentAll(ctx, p)
		}
		if err != nil || !all {
			return nil, fmt.Errorf("round %d: does not continue after a restart: %w", round, incomplete(p, err))
		}
	}
	return l.checkHub(ctx, data, began)
}

// sendWhileFsyncFails sends until an fsync has failed, and returns whether the hub
// continued by itself.
func (l *diskCase) sendWhileFsyncFails(ctx context.Context, trace string) (bool, error) {
	p, err := l.sendUntil(ctx, func() bool { return injected(trace) > 0 })
	if err != nil {
		return false, err
	}
	return l.sentAll(ctx, p)
}

// checkHub starts the hub again and checks that it has all that it acknowledged.
func (l *diskCase) checkHub(ctx context.Context, data string, began time.Time) (*DiskReport, error) {
	if err := end(ctx, l.hub, syscall.SIGKILL); err != nil {
		return nil, err
	}
	if err := l.serve(ctx, data, nil); err != nil {
		return nil, err
	}
	if _, err := l.compare(ctx, &effects{}); err != nil {
		return nil, err
	}
	l.Took = time.Since(began)
	return &l.DiskReport, nil
}

// compare compares the events in the hub with the acknowledged records and with
// the effects.
func (l *diskCase) compare(ctx context.Context, done *effects) (*history.Checker, error) {
	source, err := eventhub.New(l.connection(), hubName, nil)
	if err != nil {
		return nil, err
	}
	defer source.Close(context.WithoutCancel(ctx))
	check := &history.Checker{}
	seen := make([]bool, l.load.acknowledged())
	if l.Events, err = done.compareHub(ctx, source, diskPartitions, check, seen, l.breach); err != nil {
		return nil, err
	}
	for _, s := range l.sent {
		var there int64
		for _, ok := range seen[s.first : s.first+s.count] {
			if ok {
				there++
			}
		}
		if there < s.acked {
			l.breach("of records %d to %d, %d were acknowledged but only %d are in the hub", s.first, s.first+s.count-1, s.acked, there)
		}
	}
	panics(l.Dir, l.find)
	found, _, err := l.secrets.search(readyLine, l.Dir)
	for _, f := range found {
		l.find("%s", f)
	}
	return check, err
}

// FillSQLite fills the disk of a consumer's database in every round.
func FillSQLite(ctx context.Context, cfg DiskConfig) (_ *DiskReport, err error) {
	l, err := newDiskCase(cfg)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	disk, err := mountSmallDisk(l.disk(), diskSize)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, disk.close()) }()
	defer l.close()
	if err := l.serve(ctx, "", nil); err != nil {
		return nil, err
	}
	c, err := l.consume(nil)
	if err != nil {
		return nil, err
	}
	defer func() { c.end(syscall.SIGKILL); <-c.done }()
	for round := range cfg.Rounds {
		l.logProgress(round)
		if err := l.deliver(ctx, sendPerRound/2); err != nil {
			return nil, err
		}
		if !l.caughtUp(ctx) {
			return nil, fmt.Errorf("round %d: does not continue after space was freed: %s", round, tail(c.stderr()))
		}
		if err := disk.fill(); err != nil {
			return nil, err
		}
		past := len(c.stderr())
		if err := l.deliver(ctx, sendPerRound/2); err != nil {
			return nil, err
		}
		if l.logged(ctx, c, past, "disk is full", "free some room") {
			l.Faults++
		} else {
			l.find("round %d: the consumer did not log that its disk is full: %s", round, tail(c.stderr()[past:]))
		}
		if err := disk.free(roomPerRound); err != nil {
			return nil, err
		}
	}
	if err := end(ctx, c, syscall.SIGTERM); err != nil {
		return nil, err
	}
	if c.code() != 0 {
		l.find("the consumer exited with %d after SIGTERM, want 0: %s", c.code(), tail(c.stderr()))
	}
	return l.checkSQLite(ctx, began)
}

// FailSQLiteFsync makes fsyncs of a consumer fail.
func FailSQLiteFsync(ctx context.Context, cfg DiskConfig) (*DiskReport, error) {
	l, err := newDiskCase(cfg)
	if err != nil {
		return nil, err
	}
	defer l.close()
	began := time.Now()
	if err := os.MkdirAll(l.disk(), 0o777); err != nil {
		return nil, err
	}
	if err := l.serve(ctx, "", nil); err != nil {
		return nil, err
	}
	// A round in which no fsync failed is repeated: the faults are counted, not the rounds.
	for round := 0; round < cfg.Rounds || l.Faults < cfg.Rounds && round < 3*cfg.Rounds && len(l.Findings) == 0; round++ {
		l.logProgress(round)
		var trace string
		when := fmt.Sprintf("%d+%d", 4+l.random.IntN(20), 2+l.random.IntN(10))
		c, err := l.consume(func(args ...string) []string {
			trace = l.trace()
			return failFsync(trace, when, args...)
		})
		if err != nil {
			return nil, err
		}
		// strace counts the calls of each thread, and SQLite does not report every fsync of its
		// checkpoints.
		faulty := func() bool { return l.logs(c, 0, "flights.db", "disk I/O error") || c.ended() }
		for tries := 0; tries == 0 || tries < 20 && !faulty(); tries++ {
			if err := l.deliver(ctx, sendPerRound/4); err != nil {
				return nil, err
			}
			await(ctx, 10*time.Second, func() bool { return faulty() || l.done() })
		}
		logged := l.logged(ctx, c, 0, "flights.db", "disk I/O error")
		await(ctx, randomTime(l.random, 0, time.Second), func() bool { return l.done() || c.ended() })
		s := syscall.SIGTERM
		if round%2 == 0 {
			s = syscall.SIGKILL
		}
		if err := end(ctx, c, s); err != nil {
			return nil, err
		}
		switch {
		case injected(trace) == 0:
			l.Log("round %d: no fsync was made to fail", round)
		case !logged:
			l.find("round %d: the consumer did not log that its disk fails: %s", round, tail(c.stderr()))
		default:
			l.Faults++
		}
	}
	return l.checkSQLite(ctx, began)
}

// consume starts a consumer. wrap, if not nil, changes its command line.
func (l *diskCase) consume(wrap func(args ...string) []string) (*process, error) {
	args := []string{l.Binary, "run", l.pipeline(), "--history", historyOf(l.Dir, fmt.Sprintf("consumer-%03d", l.processes))}
	if wrap != nil {
		args = wrap(args...)
	}
	return l.launch("consumer", args...)
}

// deliver sends records to a hub without faults. All must be acknowledged.
func (l *diskCase) deliver(ctx context.Context, count int64) error {
	p, err := l.send(count)
	if err != nil {
		return err
	}
	if all, err := l.sentAll(ctx, p); err != nil || !all {
		return incomplete(p, err)
	}
	return nil
}

// done reports whether all acknowledged records are committed, by the histories.
func (l *diskCase) done() bool {
	up := map[string]int64{}
	files, _ := filepath.Glob(historyOf(l.Dir, "*")) // the pattern is well-formed
	for _, path := range files {
		_ = readHistory(path, func(r history.Record) { // its last line may be incomplete
			if r.Kind == history.Committed || r.Kind == history.Claimed {
				up[r.Partition] = max(up[r.Partition], r.To+1)
			}
		})
	}
	var sum int64
	for _, n := range up {
		sum += n
	}
	return sum == l.Acknowledged
}

func (l *diskCase) caughtUp(ctx context.Context) bool { return await(ctx, time.Minute, l.done) }

// checkSQLite lets a consumer catch up, and compares the database with the hub.
func (l *diskCase) checkSQLite(ctx context.Context, began time.Time) (*DiskReport, error) {
	p, err := l.launch("catch-up", l.Binary, "run", l.pipeline(), "--history", historyOf(l.Dir, "catch-up"), "--until-caught-up", "--within", "2m")
	if err != nil {
		return nil, err
	}
	if err := p.wait(ctx); err != nil {
		return nil, err
	}
	behind := p.code() != 0
	if behind {
		l.find("the consumer did not catch up: %s", tail(p.stderr()))
	}
	db, err := sql.Open("sqlite", "file:"+filepath.Join(l.disk(), "flights.db")+"?_pragma=busy_timeout(10000)")
	if err != nil {
		return nil, err
	}
	defer db.Close()
	done, err := readEffects(ctx, db, "partition")
	if err != nil {
		return nil, err
	}
	check, err := l.compare(ctx, done)
	if err != nil {
		return nil, err
	}
	l.Rows, l.DeadLetters = done.addTo(check)
	err = histories(l.Dir, check, map[string]int{})
	for _, f := range check.Findings(0) {
		if behind && f.Fault == history.Lost { // it may only be late
			l.find("%v", f)
		} else {
			l.breach("%v", f)
		}
	}
	l.Took = time.Since(began)
	return &l.DiskReport, cmp.Or(err, db.Close())
}
