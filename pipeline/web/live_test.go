package web_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/sluicetest"
)

func events(bodies ...string) []*sluice.Event { return sluicetest.Bodies(bodies...) }

// broken is a store of dead letters that can't list or count them.
type broken struct{ driver.DeadLetterStore }

func (broken) List(context.Context, sluice.Group, sluice.DeadLetterFilter) ([]sluice.DeadLetter, error) {
	return nil, errBroken
}

func (broken) Count(context.Context, sluice.Group, sluice.DeadLetterFilter) ([]driver.DeadLetterCount, error) {
	return nil, errBroken
}

// watchLive opens a live stream.
func watchLive(t testing.TB, client *http.Client, base, query string) <-chan message {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", base+"api/live?"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	so, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if so.StatusCode != http.StatusOK || so.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%d %v", so.StatusCode, so.Header)
	}
	return listen(t, so.Body)
}

// awaitTick reads ticks until one is as wanted.
func awaitTick(t testing.TB, messages <-chan message, what string, ok func(*tick) bool) *tick {
	t.Helper()
	var k tick
	for began := time.Now(); time.Since(began) < 2*time.Minute; {
		m, open := <-messages
		if !open {
			t.Fatalf("the stream ended before %s", what)
		}
		if m.name != "tick" {
			continue
		}
		k = tick{}
		if err := json.Unmarshal([]byte(m.data), &k); err != nil {
			t.Fatal(err)
		}
		if ok(&k) {
			return &k
		}
	}
	t.Fatalf("waited in vain for %s; the last tick was %+v", what, k)
	return nil
}

// receive waits for the next message of a name.
func receive(t *testing.T, messages <-chan message, name string) message {
	t.Helper()
	deadline := time.NewTimer(2 * time.Minute)
	defer deadline.Stop()
	for {
		select {
		case m, open := <-messages:
			if !open {
				t.Fatalf("the stream ended before %s came", name)
			}
			if m.name == name {
				return m
			}
		case <-deadline.C:
			t.Fatalf("waited in vain for %s", name)
		}
	}
}

// rowsOf are the partitions of a message.
type rowsOf struct {
	All  bool
	Rows []liveRow
}

type liveRow struct {
	ID, State, Owner string
	Epoch, Lag       int64
	Position         int64
	Checkpointed     int64
	Rate             float64
	Letters          int
}

func TestLive(t *testing.T) {
	need.RealTime(t)
	t.Parallel()
	w := newWorld(t, 3, nil)
	w.hub.Append("0", events("a", "bad", "c")...)
	w.consume()
	client, base := w.serve()
	messages := watchLive(t, client, base, "rows=1&pipeline=flights")
	latest := map[string]liveRow{}
	var k tick
	frame := func() (f rowsOf) {
		k = tick{}
		if err := json.Unmarshal([]byte(receive(t, messages, "tick").data), &k); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(receive(t, messages, "rows").data), &f); err != nil {
			t.Fatal(err)
		}
		for _, r := range f.Rows {
			latest[r.ID] = r
		}
		return f
	}
	if !frame().All {
		t.Error("the first are not all")
	}
	// frames reads frames until ok says so of one. There is one a second.
	frames := func(what string, ok func(rowsOf) bool) {
		for range 60 {
			if ok(frame()) {
				return
			}
		}
		t.Fatalf("%s: %+v, %+v", what, latest, k)
	}
	frames("it does not settle", func(rowsOf) bool {
		for _, r := range latest {
			if r.State != "reading" || r.Epoch != 1 || r.Owner != "here" || r.Lag != 0 || r.ID == "0" && (r.Position != 2 || r.Letters != 1) {
				return false
			}
		}
		return len(latest) == 3
	})
	frames("not all is done", func(rowsOf) bool { return k.Done == 3 && k.Dead == 1 && k.Known })
	if k.Lag != 0 || k.Here != 3 || len(k.Trouble) != 0 || len(k.Events) != 4 {
		t.Errorf("it says %+v", k)
	}

	// Another event: one row changes, and no other is sent. First the rates fall to 0, and the last
	// checkpoints become known, which changes rows without an event.
	checkpoints, err := w.store.Read(t.Context(), group)
	if err != nil {
		t.Fatal(err)
	}
	frames("rows are sent that have not changed", func(f rowsOf) bool {
		for _, c := range checkpoints {
			if r := latest[c.Partition]; r.Rate != 0 || r.Checkpointed != c.Updated.UnixMilli() {
				return false
			}
		}
		return !f.All && len(f.Rows) == 0
	})
	w.hub.Append("1", events("d")...)
	frames("no row changes after an event", func(f rowsOf) bool {
		if len(f.Rows) > 0 && (len(f.Rows) != 1 || f.All || f.Rows[0].ID != "1") {
			t.Errorf("after one event: %+v", f)
		}
		return len(f.Rows) > 0
	})
}

func TestPauseAndResume(t *testing.T) {
	need.RealTime(t)
	t.Parallel()
	w := newWorld(t, 2, nil)
	w.consume()
	client, base := w.serve()
	ticks := watchLive(t, client, base, "")
	awaitTick(t, ticks, "both partitions", func(k *tick) bool { return k.Here == 2 })

	var so struct{ Paused bool }
	w.answer(&so, "POST", "/api/partitions/1/pause", "")
	w.hub.Append("0", events("a")...)
	w.hub.Append("1", events("b", "c")...)
	k := awaitTick(t, ticks, "what waits", func(k *tick) bool { return k.Done == 1 && k.Lag == 2 })
	if k.Paused != 1 || len(k.Trouble) != 1 || k.Trouble[0].Level != "note" || !strings.Contains(k.Trouble[0].Text, "Partition 1 is paused") {
		t.Errorf("it says %+v", k)
	}
	w.answer(&so, "POST", "/api/partitions/1/resume", "")
	awaitTick(t, ticks, "all done", func(k *tick) bool { return k.Done == 3 && k.Lag == 0 && k.Paused == 0 && len(k.Trouble) == 0 })
	if rec := w.ask("POST", "/api/partitions/7/pause", "", nil); rec.Code != http.StatusConflict {
		t.Errorf("a partition of others: %d %s", rec.Code, rec.Body)
	}
}

func TestStreamsAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, nil)
	client, base := w.serve()
	for range 64 {
		<-watchLive(t, client, base, "")
	}
	so, err := client.Get(base + "api/live")
	if err != nil {
		t.Fatal(err)
	}
	so.Body.Close()
	if so.StatusCode != http.StatusServiceUnavailable || so.Header.Get("Retry-After") == "" {
		t.Errorf("the 65th: %d", so.StatusCode)
	}
}

func TestAStreamEndsWithItsSession(t *testing.T) {
	t.Parallel()
	cfg := locked
	w := newWorld(t, 1, &cfg)
	client, base := w.serve()
	c, _ := w.signIn(token, "127.0.0.1:1")
	r, err := http.NewRequestWithContext(t.Context(), "GET", base+"api/live", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.AddCookie(c)
	so, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	messages := listen(t, so.Body)
	<-messages
	w.ask("POST", "/sign-out", "", withCookie(c))
	deadline := time.NewTimer(2 * time.Minute)
	defer deadline.Stop()
	for open := true; open; {
		select {
		case _, open = <-messages:
		case <-deadline.C:
			t.Fatal("it goes on")
		}
	}
}

func TestUnknownPipelines(t *testing.T) {
	w := newWorld(t, 1, nil)
	if rec := w.ask("GET", "/api/history?pipeline=other", "", nil); rec.Code != http.StatusNotFound {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
}
