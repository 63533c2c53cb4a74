package check

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/internal/proof/need"
)

func startHub(t *testing.T, cfg *emulator.Config) *emulator.Server {
	t.Helper()
	if cfg == nil { // one assumption is broken at a time, and all others hold
		cfg = &emulator.Config{AsAzure: &emulator.AsAzure{}}
	}
	srv, err := emulator.Start([]emulator.Hub{{Name: "flights", Partitions: 2}}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { srv.Close() })
	return srv
}

func openHub(t *testing.T, srv *emulator.Server, opts Options) *hub {
	t.Helper()
	opts.ID = "test"
	s, err := OpenHub(HubAddress{ConnectionString: srv.ConnectionString(), Hub: "flights", ConsumerGroup: "$Default"}, opts)
	if err != nil {
		t.Fatal(err)
	}
	h := s.(*hub)
	h.quiet, h.staleFor, h.requests = 500*time.Millisecond, 1500*time.Millisecond, 3
	t.Cleanup(func() { h.Close(context.Background()) })
	return h
}

// granted fails the test if a right is missing.
func granted(t *testing.T, s System) {
	t.Helper()
	for _, r := range s.Rights(t.Context()) {
		if !r.Granted {
			t.Fatalf("right %s: %s", r.Name, r.Found)
		}
	}
}

// allHold runs a system as the command does.
func allHold(t *testing.T, s System, except map[string]State) List {
	t.Helper()
	report, err := (&Runner{Systems: []System{s}}).Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if rights := report[0]; rights.Check == "rights" && rights.State != OK {
		t.Errorf("%+v", rights)
	}
	for _, c := range tested(report) {
		want := OK
		if v, ok := except[c.Check]; ok {
			want = v
		}
		if c.State != want {
			t.Errorf("%s is %s, want %s: %s", c.Check, c.State, want, c.Found)
		}
	}
	if len(left(report)) > 0 {
		t.Errorf("left behind: %v", left(report))
	}
	return report
}

func TestHubHolds(t *testing.T) {
	need.RealTime(t)
	t.Parallel()
	allHold(t, openHub(t, startHub(t, nil), Options{Send: 60, Load: true}), nil)
}

// A hub that is as inexact as Azure's differs only in what Sluice allows for.
func TestHubAsAzure(t *testing.T) {
	need.RealTime(t)
	t.Parallel()
	h := openHub(t, startHub(t, &emulator.Config{AsAzure: emulator.AllAsAzure(1)}), Options{Send: 60, Load: true})
	report, err := (&Runner{Systems: []System{h}}).Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range tested(report) {
		t.Logf("%-16s %-9s %s", c.Check, c.State, c.Found)
	}
	if code := report.ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// An empty hub decides nothing about positions.
func TestEmptyHub(t *testing.T) {
	need.RealTime(t)
	t.Parallel()
	undecided := map[string]State{"hub.send": Skipped, "hub.key": Skipped, "hub.size": Skipped, "hub.throttle": Skipped}
	for _, name := range []string{"hub.numbers", "hub.next", "hub.last", "hub.offset", "hub.earliest", "hub.runtime"} {
		undecided[name] = Undecided
	}
	report := allHold(t, openHub(t, startHub(t, nil), Options{}), undecided)
	if code := report.ExitCode(); code != ExitUndecided {
		t.Errorf("exit code %d", code)
	}
}

func TestHubRights(t *testing.T) {
	t.Parallel()
	key := func(rights emulator.Rights) *emulator.Server {
		return startHub(t, &emulator.Config{Keys: []emulator.Key{{Name: "k", Secret: "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0", Rights: rights}}})
	}
	missing := func(h *hub) (names []string) {
		for _, r := range h.Rights(t.Context()) {
			if !r.Granted {
				names = append(names, r.Name)
				if r.Next == "" || r.Found == "" {
					t.Errorf("right %s: found %q, next %q", r.Name, r.Found, r.Next)
				}
			}
		}
		return names
	}
	for _, c := range []struct {
		rights emulator.Rights
		send   int
		want   []string
	}{
		{emulator.Listen, 0, nil},
		{emulator.Listen, 1, []string{"send to the hub"}},
		{emulator.Send, 1, []string{"describe the hub (Listen)", "receive in consumer group $Default"}},
	} {
		got := missing(openHub(t, key(c.rights), Options{Send: c.send}))
		if !slices.Equal(got, c.want) && !(len(c.want) == 2 && slices.Equal(got, c.want[1:])) && !(len(c.want) == 2 && slices.Equal(got, c.want[:1])) {
			t.Errorf("rights %v, send %d: missing %q, want %q", c.rights, c.send, got, c.want)
		}
	}
}

// brokenRaw is a hub that differs in one thing.
type brokenRaw struct {
	rawHub
	edit      func(from azeventhubs.StartPosition, events []event) []event
	moved     func(from azeventhubs.StartPosition) azeventhubs.StartPosition
	info      func(runtimeInfo) runtimeInfo
	fail      func(n int) error // of the n-th request for runtime information
	sends     func(ctx context.Context, to rawHub, partition, key string, bodies [][]byte) error
	described func(n int, p hubProperties) hubProperties
	largest   uint64
	slow      time.Duration
	requests  int
}

func (b *brokenRaw) read(ctx context.Context, partition string, from azeventhubs.StartPosition, want int, idle time.Duration) ([]event, error) {
	at := from
	if b.moved != nil {
		at = b.moved(from)
	}
	events, err := b.rawHub.read(ctx, partition, at, want, idle)
	if b.edit != nil {
		events = b.edit(from, events)
	}
	return events, err
}

func (b *brokenRaw) runtime(ctx context.Context, partition string) (runtimeInfo, error) {
	b.requests++
	if b.fail != nil {
		if err := b.fail(b.requests); err != nil {
			return runtimeInfo{}, err
		}
	}
	if b.slow > 0 {
		_ = pause(ctx, b.slow)
	}
	info, err := b.rawHub.runtime(ctx, partition)
	if b.info != nil {
		info = b.info(info)
	}
	return info, err
}

func (b *brokenRaw) send(ctx context.Context, partition, key string, bodies [][]byte) error {
	if b.sends == nil {
		return b.rawHub.send(ctx, partition, key, bodies)
	}
	return b.sends(ctx, b.rawHub, partition, key, bodies)
}

func (b *brokenRaw) describe(ctx context.Context) (hubProperties, error) {
	p, err := b.rawHub.describe(ctx)
	if b.described != nil {
		b.requests++
		p = b.described(b.requests, p)
	}
	return p, err
}

func (b *brokenRaw) maxBatch(ctx context.Context) (uint64, error) {
	if b.largest > 0 {
		return b.largest, nil
	}
	return b.rawHub.maxBatch(ctx)
}

// brokenSource is Sluice's driver over a hub that differs in one thing.
type brokenSource struct {
	driver.Source
	open func(of driver.Source, ctx context.Context, partition string, after driver.Position, epoch int64) (driver.Reader, error)
	read func(of driver.Reader, ctx context.Context, max int) ([]*driver.Event, error)
}

func (b *brokenSource) Open(ctx context.Context, partition string, after driver.Position, epoch int64) (driver.Reader, error) {
	open := b.open
	if open == nil {
		open = driver.Source.Open
	}
	r, err := open(b.Source, ctx, partition, after, epoch)
	if err != nil || b.read == nil {
		return r, err
	}
	return &brokenReader{r, b.read}, nil
}

type brokenReader struct {
	driver.Reader
	read func(of driver.Reader, ctx context.Context, max int) ([]*driver.Event, error)
}

func (b *brokenReader) Read(ctx context.Context, max int) ([]*driver.Event, error) {
	return b.read(b.Reader, ctx, max)
}

func breakRaw(with func(*brokenRaw)) func(*hub) {
	return func(h *hub) {
		b := &brokenRaw{rawHub: h.raw}
		with(b)
		h.raw = b
	}
}

// impatient does not wait for long where events are missing.
func impatient(with func(*hub)) func(*hub) {
	return func(h *hub) {
		h.comesWithin = h.quiet
		with(h)
	}
}

// sampled takes the sample of a hub before it is broken, which would mislead the sample too.
func sampled(with func(*hub)) func(*hub) {
	return func(h *hub) {
		_, _ = h.sample(context.Background()) // if it fails, so does the check
		with(h)
	}
}

func breakSource(b brokenSource) func(*hub) {
	return func(h *hub) { b.Source = h.source; h.source = &b }
}

var brokenHubs = []broken[*hub]{
	{"another creation time", "hub.incarnation", Failed, breakRaw(func(b *brokenRaw) {
		b.described = func(n int, p hubProperties) hubProperties {
			p.created = p.created.Add(time.Duration(n) * time.Second)
			return p
		}
	})},
	{"no creation time", "hub.incarnation", Failed, breakRaw(func(b *brokenRaw) {
		b.described = func(_ int, p hubProperties) hubProperties { p.created = time.Time{}; return p }
	})},
	{"an acknowledged event is lost", "hub.send", Failed, impatient(breakRaw(func(b *brokenRaw) {
		b.sends = func(ctx context.Context, to rawHub, p, key string, bodies [][]byte) error {
			return to.send(ctx, p, key, bodies[1:])
		}
	}))},
	{"an event is stored twice", "hub.send", Failed, breakRaw(func(b *brokenRaw) {
		b.sends = func(ctx context.Context, to rawHub, p, key string, bodies [][]byte) error {
			return to.send(ctx, p, key, append(bodies[:1:1], bodies...))
		}
	})},
	{"keys are hashed otherwise", "hub.key", Failed, impatient(breakRaw(func(b *brokenRaw) {
		b.sends = func(ctx context.Context, to rawHub, p, key string, bodies [][]byte) error {
			if key != "" {
				p, key = "0", ""
			}
			return to.send(ctx, p, key, bodies)
		}
	}))},
	{"compaction", "hub.numbers", Failed, breakRaw(func(b *brokenRaw) {
		b.edit = func(_ azeventhubs.StartPosition, events []event) []event {
			return slices.DeleteFunc(events, func(e event) bool { return e.sequence == 3 })
		}
	})},
	{"a position skips an event", "hub.next", Failed, breakRaw(func(b *brokenRaw) {
		b.moved = func(from azeventhubs.StartPosition) azeventhubs.StartPosition {
			if from.SequenceNumber != nil {
				return startAfter(*from.SequenceNumber + 1)
			}
			return from
		}
	})},
	{"the driver gets another event", "hub.next", Failed, breakSource(brokenSource{open: func(of driver.Source, ctx context.Context, p string, after driver.Position, epoch int64) (driver.Reader, error) {
		return of.Open(ctx, p, driver.Position{Sequence: after.Sequence - 1}, epoch)
	}})},
	{"a position gives an earlier event", "hub.next", Warning, breakRaw(func(b *brokenRaw) { b.edit = earlier })},
	{"the last position gives an earlier event", "hub.last", Warning, breakRaw(func(b *brokenRaw) { b.edit = earlier })},
	{"the driver cannot wait at the end", "hub.last", Failed, breakSource(brokenSource{read: func(driver.Reader, context.Context, int) ([]*driver.Event, error) {
		return nil, errors.New("event 5 came again where 6 was next")
	}})},
	{"offsets are inclusive", "hub.offset", Failed, breakRaw(func(b *brokenRaw) {
		b.edit = func(from azeventhubs.StartPosition, events []event) []event {
			if from.Offset != nil && len(events) > 0 {
				events[0].sequence--
			}
			return events
		}
	})},
	{"the earliest is not the first", "hub.earliest", Warning, breakRaw(func(b *brokenRaw) {
		b.info = func(i runtimeInfo) runtimeInfo { i.first -= 5; return i }
	})},
	{"runtime information is stale", "hub.runtime", Warning, sampled(breakRaw(func(b *brokenRaw) {
		b.info = func(i runtimeInfo) runtimeInfo { i.last -= 2; return i }
	}))},
	{"runtime information stays at -1", "hub.runtime", Warning, sampled(breakRaw(func(b *brokenRaw) {
		b.info = func(runtimeInfo) runtimeInfo { return runtimeInfo{first: 0, last: -1, empty: true} }
	}))},
	{"a position past the end is accepted", "hub.pastend", Failed, breakSource(brokenSource{open: func(of driver.Source, ctx context.Context, p string, after driver.Position, epoch int64) (driver.Reader, error) {
		return of.Open(ctx, p, driver.Origin, epoch)
	}})},
	{"a position past the end is refused in other words", "hub.pastend", Failed, breakSource(brokenSource{open: func(driver.Source, context.Context, string, driver.Position, int64) (driver.Reader, error) {
		return nil, errors.New("the position is not valid")
	}})},
	{"a higher epoch disconnects nobody", "hub.epoch.higher", Failed, func(h *hub) {
		h.stolenWithin = time.Second // in vain
		breakSource(brokenSource{read: func(_ driver.Reader, ctx context.Context, _ int) ([]*driver.Event, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}})(h)
	}},
	{"a higher epoch disconnects in other words", "hub.epoch.higher", Failed, breakSource(brokenSource{read: func(driver.Reader, context.Context, int) ([]*driver.Event, error) {
		return nil, errors.New("receiver replaced")
	}})},
	{"a lower epoch is accepted", "hub.epoch.lower", Failed, breakSource(brokenSource{open: func(of driver.Source, ctx context.Context, p string, _ driver.Position, _ int64) (driver.Reader, error) {
		return of.Open(ctx, p, driver.Origin, epochHigh)
	}})},
	{"only small events", "hub.size", Failed, breakRaw(func(b *brokenRaw) { b.largest = 64 << 10 })},
	{"the link's limit is not the service's", "hub.size", Failed, breakRaw(func(b *brokenRaw) { b.largest = 8 << 20 })},
	{"throttling in other words", "hub.throttle", Failed, func(h *hub) { h.raw = refusing{h.raw} }},
	{"slow answers", "hub.speed", Failed, breakRaw(func(b *brokenRaw) { b.slow = 1100 * time.Millisecond })},
}

// earlier puts the event before in front, where a position by number was opened.
func earlier(from azeventhubs.StartPosition, events []event) []event {
	if from.SequenceNumber == nil {
		return events
	}
	return append([]event{{sequence: *from.SequenceNumber}}, events...)
}

// refusing is a hub that refuses requests in words of its own.
type refusing struct{ rawHub }

func (refusing) runtime(context.Context, string) (runtimeInfo, error) {
	return runtimeInfo{}, errors.New("not now")
}

func TestBrokenHubs(t *testing.T) {
	need.RealTime(t)
	t.Parallel()
	every(t, "hub", brokenHubs)
	eachRow(t, brokenHubs, func(t *testing.T, c broken[*hub]) {
		h := openHub(t, startHub(t, nil), Options{Send: 40, Load: true})
		granted(t, h)
		if c.check != "hub.send" && c.check != "hub.key" {
			expect(t, h, "hub.send", OK)
		}
		c.damage(h)
		expect(t, h, c.check, c.want)
	})
}

// The emulator's own faults are named too.
func TestThrottledHub(t *testing.T) {
	need.RealTime(t)
	t.Parallel()
	for _, c := range []struct {
		fault emulator.Fault
		want  State
	}{
		{emulator.Fault{Kind: emulator.FaultServerBusy, On: emulator.OnManage, Times: 20}, OK},
		{emulator.Fault{Kind: emulator.FaultDrop, On: emulator.OnManage, Times: 20}, Failed},
	} {
		srv := startHub(t, nil)
		h := openHub(t, srv, Options{Load: true})
		granted(t, h)
		if _, err := srv.Faults().Add(c.fault); err != nil {
			t.Fatal(err)
		}
		expect(t, h, "hub.throttle", c.want)
	}
}

// receivedHub has received events, and receives as many again and again.
type receivedHub struct {
	rawHub
	events []event
}

func (r receivedHub) read(_ context.Context, _ string, from azeventhubs.StartPosition, _ int, idle time.Duration) ([]event, error) {
	time.Sleep(idle)
	list := slices.Clone(r.events)
	for i := range list {
		if from.SequenceNumber != nil {
			list[i].sequence = *from.SequenceNumber + 1 + int64(i)
		}
	}
	return list, nil
}

// A partition that has received nothing shows where events are not. Among the events of others,
// those of the check may come late.
func TestNothingReceived(t *testing.T) {
	for _, c := range []struct {
		events  []event
		decided bool
	}{{nil, true}, {[]event{{body: []byte("another sender's")}}, false}} {
		synctest.Test(t, func(t *testing.T) {
			h := &hub{raw: receivedHub{events: c.events}, quiet: time.Second, comesWithin: 30 * time.Second}
			list, err := h.readSent(t.Context(), "0", "key", time.Now(), 6)
			if len(list) > 0 || (err == nil) != c.decided {
				t.Errorf("events %v: %v, %v", c.events, list, err)
			}
		})
	}
}

// slowHub answers late, with events that have always been there.
type slowHub struct {
	rawHub
	takes time.Duration
}

func (s slowHub) runtime(ctx context.Context, _ string) (runtimeInfo, error) {
	return runtimeInfo{last: 7}, pause(ctx, s.takes)
}

func (slowHub) read(ctx context.Context, _ string, _ azeventhubs.StartPosition, _ int, idle time.Duration) ([]event, error) {
	return nil, pause(ctx, idle)
}

// The time that an answer takes does not make runtime information stale.
func TestSlowAnswersAreNotStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hub{raw: slowHub{takes: 5 * time.Second}, quiet: time.Second, staleFor: 15 * time.Second, sampled: true, samples: []sample[event]{{"0", []event{{sequence: 7}}}}}
		h.delay = h.awaitShown(t.Context(), "0", 7, time.Now())
		expect(t, h, "hub.runtime", OK)
		if stale := h.awaitShown(t.Context(), "0", 8, time.Now()); stale < h.staleFor {
			t.Errorf("information that never shows an event counts as %v behind", stale)
		}
	})
}
