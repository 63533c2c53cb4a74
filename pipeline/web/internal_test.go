package web

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/health"
	"github.com/sluice-go/sluice/sluicetest"
)

func TestSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMeter()
		commit := func(partition string, events int, lag int64, took time.Duration) {
			m.Observe(driver.Observation{Kind: driver.KindCommitted, Partition: partition, Events: events, Lag: lag, Duration: took})
		}
		m.Observe(driver.Observation{Kind: driver.KindAcquired, Partition: "0", Epoch: 1})
		m.Observe(driver.Observation{Kind: driver.KindAcquired, Partition: "1", Epoch: 1})
		commit("0", 10, 500, time.Millisecond)
		commit("1", 5, 100, 3*time.Millisecond)
		time.Sleep(time.Second)
		commit("0", 20, 300, time.Millisecond)
		m.Observe(driver.Observation{Kind: driver.KindParked, Partition: "0", Err: errors.New("odd")})
		time.Sleep(3 * time.Second) // two seconds without anything
		c := history(m, 900)
		if !slices.Equal(c.Done, []int64{15, 20, 0, 0}) || !slices.Equal(c.Lag, []int64{600, 400, 400, 400}) || !slices.Equal(c.Letters, []int64{0, 1, 0, 0}) {
			t.Errorf("done %v, lag %v, letters %v", c.Done, c.Lag, c.Letters)
		}
		if c.Took[0] != 2 || c.Longest[0] != 3 || c.Took[2] != 0 || c.Start != time.Now().Add(-4*time.Second).Unix() {
			t.Errorf("took %v, longest %v, from %d", c.Took, c.Longest, c.Start)
		}
		f := m.stats()
		if f.Done() != 35 || f.Lag != 400 || f.Partitions["0"].Rate != 6 || f.Partitions["1"].Rate != 1 {
			t.Errorf("stats %+v", f)
		}
		m.Observe(driver.Observation{Kind: driver.KindLost, Partition: "0"})
		commit("0", 1, 7, 0) // what comes late from there does not count as lag
		if f := m.stats(); f.Lag != 100 || f.Done() != 36 || len(f.Partitions) != 1 {
			t.Errorf("after one was lost %+v", f)
		}
		time.Sleep(20 * time.Minute)
		if c := history(m, 900); len(c.Done) != 899 || slices.Max(c.Done) != 0 || slices.Min(c.Lag) != 100 {
			t.Errorf("after a long while %d seconds, %d at most", len(c.Done), slices.Max(c.Done))
		}
		commit("1", 4, 90, 0)
		time.Sleep(time.Second)
		if c := history(m, 2); !slices.Equal(c.Done, []int64{0, 4}) {
			t.Errorf("then %v", c.Done)
		}
	})
}

// TestFetchedWaits: a batch that a handler has is not done.
func TestFetchedWaits(t *testing.T) {
	m := NewMeter()
	waiting := func(o driver.Observation, want int64) {
		t.Helper()
		m.Observe(o)
		if f := m.stats(); f.Lag != want {
			t.Errorf("after %v %d wait, want %d", o.Kind, f.Lag, want)
		}
	}
	at := func(n int64) sluice.Position { return sluice.Position{Sequence: n} }
	waiting(driver.Observation{Kind: driver.KindAcquired, Partition: "0"}, -1)
	waiting(driver.Observation{Kind: driver.KindFetched, Partition: "0", To: at(14), Events: 5, Lag: 35}, 35)
	waiting(driver.Observation{Kind: driver.KindCommitted, Partition: "0", To: at(14), Events: 5, Lag: 30}, 30)
	waiting(driver.Observation{Kind: driver.KindFetched, Partition: "0", To: at(24), Events: 10, Lag: 30}, 30)
	waiting(driver.Observation{Kind: driver.KindFetched, Partition: "0", To: at(44), Events: 20, Lag: 30}, 30)
	waiting(driver.Observation{Kind: driver.KindCommitted, Partition: "0", To: at(44), Events: 30, Lag: 0}, 0)
}

func TestRecordsCountWhereThereAreSome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMeter()
		for _, o := range []driver.Observation{
			{Kind: driver.KindAcquired}, {Kind: driver.KindWritten, Events: 900, Cost: 5400, InFlight: 40, Lag: 700},
			{Kind: driver.KindCommitted, Events: 850, Lag: 800}, {Kind: driver.KindFetched, Bytes: 1000, Lag: 700},
			{Kind: driver.KindRetried}, {Kind: driver.KindRetried},
		} {
			o.Partition = "9"
			m.Observe(o)
		}
		if f := m.stats(); f.Done() != 900 || f.Cost != 5400 || f.InFlight != 40 || f.Lag != 700 || f.Retries != 2 || !f.AtLeastOnce {
			t.Errorf("stats %+v", f)
		}
	})
}

func TestJournal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMeter()
		parked := func(partition string) {
			m.Observe(driver.Observation{Kind: driver.KindParked, Partition: partition, Err: errors.New(strings.Repeat("x", 1000))})
		}
		parked("2")
		for range 100 {
			parked("0")
			parked("1")
			m.Observe(driver.Observation{Kind: driver.KindFetched, Partition: "0"})
			time.Sleep(time.Second)
		}
		list := m.stats().events
		if len(list) != 3 || list[0].Partition != "2" {
			t.Fatalf("%d happenings, the first %+v", len(list), list[0])
		}
		if list = list[1:]; list[0].Times != 100 || list[0].Last-list[0].First != 99_000 || len(list[0].Text) > 410 {
			t.Errorf("%d happenings, the first %+v", len(list), list[0])
		}
		// What began first and goes on comes last.
		parked("0")
		if list := m.stats().events; list[0].Partition != "2" || list[2].Partition != "0" || list[2].Times != 101 {
			t.Errorf("the happenings are %+v", list)
		}
		time.Sleep(10 * time.Second)
		for i := range 100 {
			parked(fmt.Sprint(i))
		}
		if list := m.stats().events; len(list) != maxEntries || list[maxEntries-1].Partition != "99" {
			t.Errorf("%d happenings", len(list))
		}
	})
}

func TestOwnCertificateIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, names := t.TempDir(), []string{"localhost", "127.0.0.1"}
		k := selfSignedCert(dir, names, slog.New(slog.DiscardHandler))
		get := func() *tls.Certificate {
			t.Helper()
			c, err := k.get(nil)
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		first := get()
		time.Sleep(300 * 24 * time.Hour)
		if c := get(); fingerprint(c) != fingerprint(first) {
			t.Error("it is renewed too early")
		}
		time.Sleep(70 * 24 * time.Hour) // a month before its end, less some
		second := get()
		if fingerprint(second) == fingerprint(first) || !second.Leaf.NotAfter.After(first.Leaf.NotAfter) {
			t.Error("it is not renewed")
		}
		if c, err := selfSignedCert(dir, names, slog.New(slog.DiscardHandler)).get(nil); err != nil || fingerprint(c) != fingerprint(second) {
			t.Errorf("it is not kept: %v", err)
		}
		if c, err := selfSignedCert(dir, append(names, "10.1.2.3"), slog.New(slog.DiscardHandler)).get(nil); err != nil || c.Leaf.VerifyHostname("10.1.2.3") != nil {
			t.Errorf("not renewed for another address: %v", err)
		}
	})
}

func TestGivenCertificateIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "c.pem")
		write := func() string {
			t.Helper()
			text, err := selfSigned([]string{"example.org"}, time.Now())
			if err == nil {
				err = os.WriteFile(path, text, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			c, err := tls.X509KeyPair(text, text)
			if err != nil {
				t.Fatal(err)
			}
			return fingerprint(&c)
		}
		var log bytes.Buffer
		k := certFromFiles(path, path, slog.New(slog.NewTextHandler(&log, nil)))
		for range 3 {
			want := write()
			if c, err := k.get(nil); err != nil || fingerprint(c) != want {
				t.Errorf("it serves another: %v", err)
			}
			time.Sleep(certCheckEvery)
		}
		want := write()
		if _, err := k.get(nil); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("half of"), 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(certCheckEvery)
		if c, err := k.get(nil); err != nil || fingerprint(c) != want {
			t.Errorf("while the file is being replaced: %v", err)
		}
		if !strings.Contains(log.String(), path) {
			t.Errorf("of a file that can't be read it logs %q", &log)
		}
	})
}

// Where most events become dead letters, events do not flow.
func TestShareOfDeadLetters(t *testing.T) {
	for _, c := range []struct {
		done, dead  int64
		atLeastOnce bool
		want        string
	}{
		{0, 0, false, ""}, {2000, 0, false, ""}, {2000, 2000, false, "bad"}, {0, 2000, true, "bad"}, {0, 2000, false, "bad"},
		{4, 4, false, ""}, {10_000, 20, false, ""}, {100, 20, false, "warn"}, {80, 20, true, "warn"}, {20, 20, true, "bad"},
	} {
		// The checkpoint passes dead letters later than they are stored.
		s := shareOf([]sample{{DeadLetters: c.dead}, {Done: c.done}}, c.atLeastOnce)
		if got := s.level(); got != c.want {
			t.Errorf("%d done, %d dead, at least once %v: %q, want %q", c.done, c.dead, c.atLeastOnce, got, c.want)
		}
	}
}

// The hub was recreated: what was done says nothing about the events of the new one.
func TestLagOfARecreatedHub(t *testing.T) {
	m := NewMeter()
	m.Observe(driver.Observation{Kind: driver.KindAcquired, Partition: "0", Epoch: 1})
	m.Observe(driver.Observation{Kind: driver.KindClaimed, Partition: "0", To: sluice.Position{Sequence: 1999}})
	m.Observe(driver.Observation{Kind: driver.KindCommitted, Partition: "0", To: sluice.Position{Sequence: 1999}, Events: 1})
	m.Observe(driver.Observation{Kind: driver.KindHalted, Partition: "0", Err: sluice.ErrRecreated})
	stats := m.stats()
	now := time.Now().Add(time.Second)
	k := &known{
		firstRead: now, described: now, topic: sluice.Topic{Incarnation: "new", Partitions: []string{"0"}},
		leases:   map[string]leased{"0": {expires: now.Add(time.Minute)}},
		progress: map[string]sluice.Checkpoint{"0": {Partition: "0", Incarnation: "old", Position: sluice.Position{Sequence: 1999}}},
		bounds:   map[string]bounds{"0": {driver.Bounds{Last: driver.Position{Sequence: 1999}}, now}},
	}
	rows := k.rows(&Pipeline{Meter: m}, &stats, now)
	if rows[0].State != "stopped" || rows[0].Lag != 2000 || m.stats().Lag != 2000 {
		t.Errorf("%+v, all together %d, want 2000 that wait", rows[0], m.stats().Lag)
	}
	k.progress["0"] = sluice.Checkpoint{Partition: "0", Incarnation: "new", Position: sluice.Position{Sequence: 1999}}
	if rows := k.rows(&Pipeline{Meter: m}, &stats, now); rows[0].Lag != 0 {
		t.Errorf("after the checkpoint was set: %+v", rows[0])
	}
}

func TestTroubles(t *testing.T) {
	k := &known{failed: map[string]string{"lease store": "connection refused"}}
	rows := []row{{ID: "0", State: "stopped", Error: "the hub was recreated"}, {ID: "5", State: "reading"}, {ID: "6", State: "paused"}, {ID: "7", State: "elsewhere"}, {ID: "8", State: "stalled", Error: "handler has not returned for 30s"}}
	warnings := []health.Warning{
		{Kind: health.WarningUnowned, Partitions: []string{"1", "2"}, Text: "nobody reads them"},
		{Kind: health.WarningStalled, Partitions: []string{"6"}, Text: "of what is paused that is no news"},
		{Kind: health.WarningStalled, Partitions: []string{"7"}, Text: "it stands"},
		{Kind: health.WarningExpired, Partitions: []string{"9"}, Text: "events are lost"},
	}
	var got []string
	for _, x := range troubles(k, rows, warnings, share{dead: 30, all: 400}) {
		got = append(got, x.Level+": "+x.Text)
	}
	want := []string{
		"bad: Partition 0 halted, operator action required: the hub was recreated",
		"bad: The lease store did not answer: connection refused",
		"bad: events are lost",
		"warn: Partition 8 stalled: handler has not returned for 30s",
		"warn: 30 of 400 events of the last minute became dead letters: look at the newest ones.",
		"warn: nobody reads them",
		"warn: it stands",
		"note: Partition 6 is paused here, until resumed or until this process ends.",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

// TestWatching: nobody reads the partitions, and the dashboard says so by
// itself, unless somebody else is to.
func TestWatching(t *testing.T) {
	for watched, want := range map[bool]int{false: 1, true: 0} {
		synctest.Test(t, func(t *testing.T) {
			group := sluice.Group{Namespace: "ns", Topic: "t", Name: "g"}
			p := Pipeline{Name: "p", Group: group, Source: sluicetest.NewHub(group, 2), Leases: new(sluicetest.Leases), Checkpoints: new(sluicetest.Store), Watched: watched}
			d, err := New([]Pipeline{p}, nil)
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { d.Run(ctx) })
			time.Sleep(5 * time.Minute)
			if list := d.find("p").view.warnings(); len(list) != want || want == 1 && list[0].Kind != health.WarningUnowned {
				t.Errorf("it says %+v", list)
			}
			stop()
			running.Wait()
		})
	}
}

// firstAccept is a listener that calls accepts before it accepts.
type firstAccept struct {
	net.Listener
	accepts func()
}

func (l firstAccept) Accept() (net.Conn, error) {
	l.accepts()
	return l.Listener.Accept()
}

// TestServeRunsFirst: the first request finds a dashboard that runs, which else would refuse a
// stream.
func TestServeRunsFirst(t *testing.T) {
	for range 20 { // the goroutine that accepts and the one that runs start in any order
		d, err := New([]Pipeline{{Name: "p", Source: sluicetest.NewHub(sluice.Group{}, 1), Leases: new(sluicetest.Leases)}}, &Config{Dir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		s, err := d.server(firstAccept{l, func() {
			if !d.running.Load() {
				t.Error("a connection is accepted before the dashboard runs")
			}
			stop()
		}})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Serve(ctx); err != nil {
			t.Error(err)
		}
	}
}

// TestLagOfPartitionsElsewhere: what no consumer here tells is the log's end
// less the checkpoint.
func TestLagOfPartitionsElsewhere(t *testing.T) {
	now := time.Now()
	k := &known{
		topic:  sluice.Topic{Partitions: []string{"10", "9", "8"}},
		leases: map[string]leased{"9": {driver.LeaseInfo{Lease: sluice.Lease{Partition: "9", Owner: "other", Epoch: 4}}, now.Add(time.Minute)}},
		progress: map[string]sluice.Checkpoint{
			"9": {Partition: "9", Position: sluice.Position{Sequence: 40}}, "10": {Partition: "10", Position: driver.Unset},
		},
		bounds: map[string]bounds{
			"9":  {driver.Bounds{First: 0, Last: sluice.Position{Sequence: 100}}, now},
			"10": {driver.Bounds{First: 20, Last: sluice.Position{Sequence: 29}}, now},
		},
	}
	rows := k.rows(&Pipeline{}, &meterStats{}, now)
	if len(rows) != 3 || rows[0].ID != "8" || rows[1].ID != "9" || rows[2].ID != "10" {
		t.Fatalf("rows %+v", rows)
	}
	if r := rows[0]; r.State != "free" || r.Lag != -1 {
		t.Errorf("not known: %+v", r)
	}
	if r := rows[1]; r.State != "elsewhere" || r.Lag != 60 || r.Owner != "other" || r.Epoch != 4 {
		t.Errorf("elsewhere: %+v", r)
	}
	if r := rows[2]; r.State != "free" || r.Lag != 10 { // of which 20 are gone already
		t.Errorf("not begun: %+v", r)
	}
}

// TestGuessersElsewhere has more machines guess than are remembered.
func TestGuessersElsewhere(t *testing.T) {
	d, err := newAuth(strings.Repeat("t", minTokenLength))
	if err != nil {
		t.Fatal(err)
	}
	at := func(n int) netip.Addr {
		return netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, byte(n >> 8), byte(n)})
	}
	for i := range maxAddresses + 1000 {
		if err := d.login("a guess", at(i)); err != errWrongToken {
			t.Fatalf("guess %d: %v", i, err)
		}
	}
	if len(d.limiter.limiters) != maxAddresses {
		t.Errorf("%d addresses are remembered", len(d.limiter.limiters))
	}
	last := at(60_000)
	for range loginBurst {
		_ = d.login("a guess", last)
	}
	if err := d.login(strings.Repeat("t", minTokenLength), last); err != errTooManyLogins {
		t.Errorf("the last to guess gets %v", err)
	}
	if err := d.login(strings.Repeat("t", minTokenLength), at(60_001)); err != nil {
		t.Errorf("an address without a guess gets %v", err)
	}
}

// TestSilentStores: what no store has said is not made up, and what a lease
// store said long ago is no news of who has a partition now.
func TestSilentStores(t *testing.T) {
	now := time.Now()
	k := &known{
		topic:  sluice.Topic{Partitions: []string{"0"}},
		bounds: map[string]bounds{"0": {driver.Bounds{Last: sluice.Position{Sequence: 100}}, now}},
	}
	if r := k.rows(&Pipeline{}, &meterStats{}, now)[0]; r.State != "unknown" || r.Lag != -1 || r.Position != unknown {
		t.Errorf("before any store has answered: %+v", r)
	}
	k.leases = map[string]leased{"0": {driver.LeaseInfo{Lease: sluice.Lease{Partition: "0", Owner: "other"}}, now.Add(-time.Second)}}
	k.progress = map[string]sluice.Checkpoint{}
	if r := k.rows(&Pipeline{}, &meterStats{}, now)[0]; r.State != "free" || r.Lag != 101 {
		t.Errorf("a lease that has ended: %+v", r)
	}
	k.failed = map[string]string{leaseStore: "connection refused"}
	if r := k.rows(&Pipeline{}, &meterStats{}, now)[0]; r.State != "unknown" || r.Lag != 101 {
		t.Errorf("a lease that may have been renewed: %+v", r)
	}
	s := newShown(Pipeline{Name: "p"})
	s.view.known = known{topic: k.topic}
	s.view.render(s, now)
	var drawn summary
	if err := json.Unmarshal(s.view.snapshot.summary, &drawn); err != nil {
		t.Fatal(err)
	}
	if drawn.Dead != -1 || drawn.Lag != -1 || drawn.Seen != 0 || drawn.Unknown != 1 || drawn.Free != 0 || drawn.Events == nil {
		t.Errorf("drawn: %s", s.view.snapshot.summary)
	}
}

// aThousand is a pipeline of a thousand partitions of which all move.
func aThousand() (*shown, []string) {
	m, ids := NewMeter(), make([]string, 1000)
	k := &known{firstRead: time.Now(), leases: map[string]leased{}, progress: map[string]sluice.Checkpoint{}, bounds: map[string]bounds{}}
	for i := range ids {
		ids[i] = fmt.Sprint(i)
		l := sluice.Lease{Partition: ids[i], Owner: "host-1234-abcdef01", Epoch: 12}
		m.Observe(driver.Observation{Kind: driver.KindAcquired, Partition: ids[i], Epoch: 12})
		k.leases[ids[i]] = leased{driver.LeaseInfo{Lease: l, Renewed: time.Now()}, time.Now().Add(time.Hour)}
	}
	k.topic.Partitions = ids
	s := newShown(Pipeline{Name: "p", Meter: m})
	s.view.known = *k
	return s, ids
}

// BenchmarkUpdate is what a second costs the process with a thousand
// partitions while somebody looks at them: the frame, once for all, and the
// text for each browser.
func BenchmarkUpdate(b *testing.B) {
	for _, moving := range []int{1000, 10} {
		b.Run(fmt.Sprintf("moving=%d", moving), func(b *testing.B) {
			s, ids := aThousand()
			var text []byte
			b.ReportAllocs()
			for n := int64(0); b.Loop(); n++ {
				for _, id := range ids[:moving] {
					s.Meter.Observe(driver.Observation{Kind: driver.KindCommitted, Partition: id, Events: 1000, To: sluice.Position{Sequence: 1e9 + n}, Lag: n % 5000})
				}
				s.view.render(s, time.Now())
				text = appendRows(append(text[:0], s.view.snapshot.summary...), s.view.snapshot, s.view.snapshot.number-1)
			}
			b.ReportMetric(float64(len(text)), "bytes/update")
		})
	}
}

// BenchmarkPage is what opening the page of partitions costs: all rows.
func BenchmarkPage(b *testing.B) {
	s, _ := aThousand()
	s.view.render(s, time.Now())
	var text []byte
	b.ReportAllocs()
	for b.Loop() {
		text = appendRows(append(text[:0], s.view.snapshot.summary...), s.view.snapshot, 0)
	}
	b.ReportMetric(float64(len(text)), "bytes/page")
}

// BenchmarkObserve is what the meter costs the engine, per observation.
func BenchmarkObserve(b *testing.B) {
	s, ids := aThousand()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		s.Meter.Observe(driver.Observation{Kind: driver.KindCommitted, Partition: ids[i%1000], Events: 500, Bytes: 500_000, Lag: 10})
	}
}

func TestRetriesShown(t *testing.T) {
	now := time.Now()
	var s retries
	for _, so := range []runJSON{
		{Began: now.Add(-time.Hour).UnixMilli()},
		{Began: now.Add(-time.Hour).UnixMilli(), Ended: true},
		{Began: now.Add(-time.Minute).UnixMilli(), Ended: true},
	} {
		s.add(&retry{json: so})
	}
	list := s.list(now)
	if len(list) != 2 || list[0].ID != 3 || list[1].ID != 1 {
		t.Errorf("shown are %+v", list)
	}
	s.add(&retry{})
	if list := s.list(now); len(list) != 2 || list[0].ID != 4 || list[1].ID != 3 {
		t.Errorf("of more than are shown the newest are not: %+v", list)
	}
}

// TestStalledRow: the row of a partition that something holds up says so, and why.
func TestStalledRow(t *testing.T) {
	m := NewMeter()
	m.Observe(driver.Observation{Kind: driver.KindAcquired, Partition: "0", Epoch: 1})
	m.Observe(driver.Observation{Kind: driver.KindStalled, Partition: "0", Epoch: 1, Duration: time.Minute, Err: errors.New("handler has not returned for 1m0s")})
	k := &known{topic: sluice.Topic{Partitions: []string{"0"}}}
	stats := m.stats()
	if r := k.rows(&Pipeline{}, &stats, time.Now())[0]; r.State != "stalled" || r.Error != "handler has not returned for 1m0s" {
		t.Errorf("row %+v", r)
	}
	m.Observe(driver.Observation{Kind: driver.KindResumed, Partition: "0", Epoch: 1})
	stats = m.stats()
	if r := k.rows(&Pipeline{}, &stats, time.Now())[0]; r.State != "reading" || r.Error != "" || len(stats.events) != 3 {
		t.Errorf("after it: row %+v, events %+v", r, stats.events)
	}
}

// TestEndsAtOnce: a dashboard reads what the consumers leave of a log's limit.
func TestEndsAtOnce(t *testing.T) {
	for _, c := range []struct {
		budget           float64
		partitions, want int
	}{{0, 1024, boundsAtOnce}, {8, 4, 14}, {8, 32, 3}, {8, 1024, 2}, {0.1, 1024, 1}} {
		if got := endsAtOnce(c.budget, c.partitions); got != c.want {
			t.Errorf("limit of %v a second, %d partitions: %d in a refresh, want %d", c.budget, c.partitions, got, c.want)
		}
	}
}
