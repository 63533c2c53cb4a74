package web_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"bytes"
	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/pipeline/web"
	"log/slog"
)

// park puts dead letters into the store, in partitions 0 and 1 by turns.
func (w *world) park(t testing.TB, n int) {
	t.Helper()
	list := make([]sluice.DeadLetter, n)
	for i := range list {
		list[i] = sluice.DeadLetter{
			Group: group, Incarnation: "i", FailedAt: time.Now(), Error: fmt.Sprintf("failure %d", i), Attempts: 3, Status: sluice.StatusDead, HasBody: true,
			Event: sluice.Event{Partition: fmt.Sprint(i % 2), Sequence: int64(i), Key: fmt.Sprintf("key%d", i%3), Body: []byte(fmt.Sprintf(`{"n":%d}`, i))},
		}
	}
	if err := w.store.Park(t.Context(), list); err != nil {
		t.Fatal(err)
	}
}

func TestSearch(t *testing.T) {
	w := newWorld(t, 2, nil)
	w.park(t, 30)
	for search, want := range map[string]int{
		"": 30, "failure 2": 11, "FAILURE 29": 1, "partition=1": 15, "key=key0, partition=0": 5, "sequence=10..19": 10, "status=discarded": 0, "nothing like it": 0,
		"error~failure 1": 11, "a = b": 0,
	} {
		if so := w.letters("?" + url.Values{"search": {search}}.Encode()); len(so.Letters) != want || so.More {
			t.Errorf("%q finds %d, want %d", search, len(so.Letters), want)
		}
	}
	for _, bad := range []string{"search=partition%3D", "search=sequence%3Dx", "status=lost", "after=x", "search=" + strings.Repeat("x", 5000)} {
		if rec := w.ask("GET", "/api/dead-letters?"+bad, "", nil); rec.Code != http.StatusBadRequest {
			t.Errorf("%.40s: %d %s", bad, rec.Code, rec.Body)
		}
	}
}

func TestPages(t *testing.T) {
	w := newWorld(t, 2, nil)
	w.park(t, 250)
	seen, after := map[int64]bool{}, ""
	for page := range 3 {
		so := w.letters("?after=" + after)
		for _, l := range so.Letters {
			if seen[l.ID] {
				t.Errorf("%d is on two pages", l.ID)
			}
			seen[l.ID] = true
			after = fmt.Sprint(l.ID)
		}
		if so.More != (page < 2) {
			t.Errorf("page %d: more is %v", page, so.More)
		}
	}
	if len(seen) != 250 {
		t.Errorf("%d of 250 on all pages", len(seen))
	}
}

func TestLookAtOne(t *testing.T) {
	w := newWorld(t, 2, nil)
	const attack = `</script><script>alert(1)</script><img src=x onerror=alert(1)>`
	list := []sluice.DeadLetter{
		{Event: sluice.Event{Body: []byte(attack), Properties: map[string]any{attack: attack, "n": int64(7)}}, HasBody: true, Error: attack},
		{Event: sluice.Event{Body: []byte{0xff, 0xfe, 0, 1}}, HasBody: true},
		{Event: sluice.Event{Body: []byte(strings.Repeat("é", 200_000))}, HasBody: true},
		{},
		{Event: sluice.Event{Body: []byte(`{"id":12345678901234567890, "rate":1.50,"list":["a\\\"[", {}]}`)}, HasBody: true},
		{Event: sluice.Event{Body: []byte(strings.Repeat("[", 9000) + strings.Repeat("]", 9000))}, HasBody: true},
		{Event: sluice.Event{Body: []byte(strings.Repeat("\xff", 1000))}, HasBody: true, Error: strings.Repeat("e", 1<<20)},
	}
	for i := range list {
		list[i].Group, list[i].Status, list[i].Event.Partition, list[i].Event.Sequence = group, sluice.StatusDead, "0", int64(i)
	}
	if err := w.store.Park(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	type whole struct {
		Error, Text string
		Properties  map[string]string
		Bytes       []byte
		HasBody     bool
		Size        int
		Cut         bool
	}
	look := func(id int) (l whole) {
		t.Helper()
		w.answer(&l, "GET", fmt.Sprintf("/api/dead-letters/%d", id), "")
		return l
	}
	if l := look(1); l.Error != attack || l.Text != attack || l.Properties[attack] != attack || l.Properties["n"] != "7" {
		t.Errorf("got %+v", l)
	}
	// What comes from events is never markup on the way, whatever reads it.
	if rec := w.ask("GET", "/api/dead-letters/1", "", nil); strings.ContainsAny(rec.Body.String(), "<>") || rec.Header().Get("Content-Type") != "application/json" {
		t.Errorf("%s: %s", rec.Header().Get("Content-Type"), rec.Body)
	}
	if l := look(2); l.Text != "" || string(l.Bytes) != "\xff\xfe\x00\x01" || l.Size != 4 || l.Cut {
		t.Errorf("bytes: %+v", l)
	}
	if l := look(3); l.Size != 400_000 || len(l.Text) > 256<<10 || strings.Trim(l.Text, "é") != "" || !l.Cut {
		t.Errorf("a long text: %d of %d", len(l.Text), l.Size)
	}
	if l := look(4); l.HasBody || l.Text != "" {
		t.Errorf("without a body: %+v", l)
	}
	if l, want := look(5), "{\n  \"id\": 12345678901234567890,\n  \"rate\": 1.50,\n  \"list\": [\n    \"a\\\\\\\"[\",\n    {}\n  ]\n}"; l.Text != want || l.Cut {
		t.Errorf("JSON is shown as %s", l.Text)
	}
	if l := look(6); l.Text != string(list[5].Event.Body) {
		t.Errorf("deep JSON has %d bytes of margin", len(l.Text)-18_000)
	}
	if l := look(7); len(l.Bytes) != 512 || l.Size != 1000 || !l.Cut || len(l.Error) > 257<<10 {
		t.Errorf("%d bytes of %d, and %d of the error", len(l.Bytes), l.Size, len(l.Error))
	}
	for path, code := range map[string]int{"/api/dead-letters/99": http.StatusNotFound, "/api/dead-letters/x": http.StatusBadRequest} {
		if rec := w.ask("GET", path, "", nil); rec.Code != code {
			t.Errorf("%s: %d", path, rec.Code)
		}
	}
}

func TestSelections(t *testing.T) {
	w := newWorld(t, 2, nil)
	w.park(t, 30)
	for _, bad := range []string{
		"", "{", "[]", `{}`, `{"ids":[]}`, `{"ids":[1],"all":true}`, `{"ids":["1"]}`, `{"all":true,"search":"partition="}`, `{"everything":true}`,
		`{"ids":[` + strings.Repeat("1,", 40_000) + `1]}`,
	} {
		if rec := w.ask("POST", "/api/dead-letters/discard", bad, nil); rec.Code != http.StatusBadRequest {
			t.Errorf("%.40s: %d %s", bad, rec.Code, rec.Body)
		}
	}
	if so := w.letters(""); len(so.Letters) != 30 {
		t.Fatalf("%d are left", len(so.Letters))
	}
	var so changed
	w.answer(&so, "POST", "/api/dead-letters/discard", `{"ids":[1,2,99]}`)
	if so.Letters != 2 || so.More {
		t.Errorf("%+v discarded, want 2", so)
	}
	w.answer(&so, "POST", "/api/dead-letters/discard", `{"all":true,"search":"partition=1"}`)
	if so.Letters != 14 || so.More {
		t.Errorf("%+v discarded, want the 14 that were left of partition 1", so)
	}
	if left, gone := w.letters(""), w.letters("?status=discarded"); len(left.Letters) != 14 || len(gone.Letters) != 16 {
		t.Errorf("%d left, %d discarded", len(left.Letters), len(gone.Letters))
	}
}

// changed is what a request has done to dead letters.
type changed struct {
	Letters int64
	More    bool
}

func TestMoreThanARequestChanges(t *testing.T) {
	w := newWorld(t, 2, nil)
	w.park(t, 10_001)
	for _, want := range []changed{{10_000, true}, {1, false}} {
		var so changed
		w.answer(&so, "POST", "/api/dead-letters/discard", `{"all":true}`)
		if so != want {
			t.Errorf("%+v, want %+v", so, want)
		}
	}
}

// tick is what the tests look at.
type tick struct {
	Done, Lag      int64
	Dead, Retrying int
	Here, Paused   int
	Known          bool
	Trouble        []struct{ Level, Text string }
	Events         []struct{ Kind, Text string }
	Seconds        struct{ Done []int64 }
	Runs           []struct {
		Marked                              int64
		Applied, Failed, Waiting, Discarded int
		Ended                               bool
		Error                               string
		Failures                            []struct{ Error string }
	}
}

func TestRetry(t *testing.T) {
	need.RealTime(t)
	t.Parallel()
	w := newWorld(t, 2, nil)
	w.hub.Append("0", events("good", "bad <b>1</b>", "good")...)
	w.hub.Append("1", events("bad 2")...)
	w.consume()
	client, base := w.serve()
	await(t, "dead letters", func() bool { return len(w.letters("").Letters) == 2 })
	ticks := watchLive(t, client, base, "")

	var marked changed
	w.answer(&marked, "POST", "/api/dead-letters/retry", `{"all":true}`)
	if marked.Letters != 2 || marked.More {
		t.Errorf("%+v marked", marked)
	}
	so := awaitTick(t, ticks, "the retry's end", func(k *tick) bool { return len(k.Runs) == 1 && k.Runs[0].Ended })
	if r := so.Runs[0]; r.Applied != 0 || r.Failed != 2 || r.Waiting != 0 || len(r.Failures) != 2 || r.Error != "" {
		t.Errorf("refused again: %+v", r)
	}

	w.mended.Store(true)
	w.answer(&marked, "POST", "/api/dead-letters/retry", fmt.Sprintf(`{"ids":[%d]}`, w.letters("?search=2").Letters[0].ID))
	so = awaitTick(t, ticks, "the second's end", func(k *tick) bool { return len(k.Runs) == 2 && k.Runs[0].Ended && k.Dead == 1 })
	if r := so.Runs[0]; r.Marked != 1 || r.Applied != 1 || r.Failed != 0 {
		t.Errorf("mended: %+v", r)
	}
	if left := w.letters(""); len(left.Letters) != 1 || !strings.Contains(left.Letters[0].Error, "<b>1</b>") {
		t.Errorf("left are %+v", left)
	}
	if rows := w.store.Rows("rows"); len(rows) != 3 {
		t.Errorf("rows %v", rows)
	}
}

func TestRetryNeedsTheDashboardToRun(t *testing.T) {
	w := newWorld(t, 1, nil)
	w.park(t, 1)
	for method, path := range map[string]string{"POST": "/api/dead-letters/retry", "GET": "/api/live"} {
		if rec := w.ask(method, path, `{"ids":[1]}`, nil); rec.Code != http.StatusServiceUnavailable {
			t.Errorf("%s: %d", path, rec.Code)
		}
	}
}

func TestStoresOutOfOrder(t *testing.T) {
	w := newWorld(t, 1, nil)
	d, err := web.New([]web.Pipeline{{Name: "flights", Group: group, Source: w.hub, Leases: w.leases, DeadLetters: broken{w.store}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	w.dashboard = d
	rec := w.ask("GET", "/api/dead-letters", "", nil)
	var so struct{ Error string }
	if err := json.Unmarshal(rec.Body.Bytes(), &so); err != nil || rec.Code != http.StatusBadGateway || so.Error != errBroken.Error() {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
}

var errBroken = errors.New("out of order")

// uncounted is a store whose dead letters must not be listed to count them.
type uncounted struct {
	driver.DeadLetterStore
	t *testing.T
}

func (s uncounted) List(context.Context, sluice.Group, sluice.DeadLetterFilter) ([]sluice.DeadLetter, error) {
	s.t.Error("dead letters are listed to be counted")
	return nil, errBroken
}

// However many dead letters there are, the overview counts all and reads none.
func TestDeadLettersAreCountedByTheStore(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, nil)
	w.park(t, 1200)
	var err error
	w.dashboard, err = web.New([]web.Pipeline{{Name: "flights", Group: group, Source: w.hub, Leases: w.leases, Checkpoints: w.store, DeadLetters: uncounted{w.store, t}}}, &web.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	client, base := w.serve()
	awaitTick(t, watchLive(t, client, base, "pipeline=flights"), "all dead letters", func(k *tick) bool { return k.Dead == 1200 })
}

// The log names the dead letters that an action has changed.
func TestActionsAreLoggedWithIDs(t *testing.T) {
	t.Parallel()
	var lines bytes.Buffer
	w := newWorld(t, 1, &web.Config{Log: slog.New(slog.NewTextHandler(&lines, nil))})
	w.park(t, 7)
	var so struct{ Letters int64 }
	w.answer(&so, "POST", "/api/dead-letters/discard", `{"ids":[6,2,3,4]}`)
	if so.Letters != 4 || !strings.Contains(lines.String(), `msg="dashboard: dead letters discarded" pipeline=flights dead_letters=4 ids=2-4,6 from=127.0.0.1`) {
		t.Errorf("%d discarded, logged %s", so.Letters, &lines)
	}
}
