package stamp_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine/enginetest"
	"github.com/sluice-go/sluice/stamp"
)

func TestChainID(t *testing.T) {
	for text, id := range map[string]stamp.CausationID{
		"flights@12ab/0/42/0":                  {Source: "flights@12ab", Partition: "0", Sequence: 42},
		"a%2Fb%25%20%C3%BC/%2F/0/7":            {Source: "a/b% ü", Partition: "/", N: 7},
		"//9223372036854775807/2147483647":     {Sequence: 1<<63 - 1, N: 1<<31 - 1},
		strings.Repeat("x", 500) + "/0/1/1":    {Source: strings.Repeat("x", 500), Partition: "0", Sequence: 1, N: 1},
		"%00%7F%0A/2026-01-02T03:04:05Z/12/34": {Source: "\x00\x7f\n", Partition: "2026-01-02T03:04:05Z", Sequence: 12, N: 34},
	} {
		if got := id.String(); got != text {
			t.Errorf("%+v is written %q, want %q", id, got, text)
		}
		if got, err := stamp.ParseCausationID(text); err != nil || got != id {
			t.Errorf("%q is read as %+v, %v; want %+v", text, got, err, id)
		}
	}
	for _, text := range []string{
		"", "/", "a/0/1", "a/b/0/1/0", "a/0/-1/0", "a/0/1/-1", "a/0/01/0", "a/0/+1/0", "a/0//0", "a/0/1/", "a/0/1/2147483648", "a/0/9223372036854775808/0",
		"a b/0/1/0", "ü/0/1/0", "a%2/0/1/0", "a%2f/0/1/0", "a%41/0/1/0", "a%/0/1/0", "a/0/1/0\n", strings.Repeat("x", 600) + "/0/1/0",
	} {
		if id, err := stamp.ParseCausationID(text); err == nil {
			t.Errorf("%q is read as %+v, want an error", text, id)
		} else if strings.ContainsAny(err.Error(), "\r\n") || len(err.Error()) > 200 {
			t.Errorf("%q: error %q, want one short line", text, err)
		}
	}
}

func FuzzParseChainID(f *testing.F) {
	for _, text := range []string{"flights@12ab/0/42/0", "a%2Fb%25%20%C3%BC/%2F/0/7", "//0/0", "a/0/01/0", "a%41/0/1/0", "%/%/%/%"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		id, err := stamp.ParseCausationID(text)
		if err != nil {
			if strings.ContainsAny(err.Error(), "\r\n") {
				t.Errorf("error of several lines: %q", err)
			}
			return
		}
		if again := id.String(); again != text {
			t.Errorf("%q was read as %+v, which is written %q: an id has one text", text, id, again)
		}
	})
}

func TestStampFrom(t *testing.T) {
	id := stamp.CausationID{Source: "flights@12ab", Partition: "3", Sequence: 42, N: 1}
	for _, given := range []stamp.Stamp{
		{ID: id, Epoch: 7, Low: 40},
		{ID: id, Epoch: 7, Low: -1},
		{ID: id, Epoch: 7, Low: 99, Parked: "-1/0:42,3+1", Redrive: true},
	} {
		properties := map[string]any{"sluice-retry": true, "sluice-parked": "5/", "city": "Lyon"}
		given.SetTo(properties)
		got, there, err := stamp.From(properties)
		if err != nil || !there || got != given || properties["city"] != "Lyon" {
			t.Errorf("%+v became %v, which is read as %+v, %v, %v", given, properties, got, there, err)
		}
	}
	for _, none := range []map[string]any{nil, {}, {"sluice-epoch": int64(1), "sluice-low": int64(2)}} {
		if got, there, err := stamp.From(none); there || err != nil {
			t.Errorf("%v is read as %+v, %v, %v; want no stamp", none, got, there, err)
		}
	}
	foreign := map[string]any{"sluice-id": []byte(id.String()), "sluice-epoch": int32(7)}
	if got, there, err := stamp.From(foreign); err != nil || !there || got != (stamp.Stamp{ID: id, Epoch: 7, Low: -1}) {
		t.Errorf("%v is read as %+v, %v, %v", foreign, got, there, err)
	}
	texts := map[string]any{"sluice-id": id.String(), "sluice-epoch": "7", "sluice-low": "99", "sluice-retry": "true", "sluice-parked": "-1/0:42,3+1"}
	if got, there, err := stamp.From(texts); err != nil || !there || got != (stamp.Stamp{ID: id, Epoch: 7, Low: 99, Parked: "-1/0:42,3+1", Redrive: true}) {
		t.Errorf("%v is read as %+v, %v, %v", texts, got, there, err)
	}
	for name, value := range map[string]any{"sluice-id": 7, "sluice-epoch": "seven", "sluice-low": 1.5, "sluice-parked": 5, "sluice-retry": int64(1)} {
		properties := map[string]any{"sluice-id": id.String()}
		properties[name] = value
		if got, there, err := stamp.From(properties); err == nil || there || !strings.Contains(err.Error(), name) {
			t.Errorf("%v is read as %+v, %v, %v; want an error that names %s", properties, got, there, err, name)
		}
	}
	for _, properties := range []map[string]any{
		{"sluice-id": "one"}, {"sluice-id": id.String(), "sluice-epoch": int64(-1)}, {"sluice-id": id.String(), "sluice-retry": "maybe"}, {"sluice-id": id.String(), "sluice-low": "9223372036854775808"}, {"sluice-id": id.String(), "sluice-low": int64(-2)},
		{"sluice-id": id.String(), "sluice-low": int64(42)}, // of the event itself, which was not done
	} {
		if got, there, err := stamp.From(properties); err == nil || there {
			t.Errorf("%v is read as %+v, %v, %v; want an error", properties, got, there, err)
		}
	}
}

func TestDropStamp(t *testing.T) {
	properties := map[string]any{"city": "Lyon"}
	stamp.Stamp{ID: stamp.CausationID{Source: "flights@12ab", Sequence: 42}, Low: 99, Parked: "-1/0:42", Redrive: true}.SetTo(properties)
	stamp.Drop(properties)
	if len(properties) != 1 || properties["city"] != "Lyon" {
		t.Errorf("left are %v, want the city alone", properties)
	}
	stamp.Drop(nil)
}

// stamping is a sink that notes the stamps of records, as they are made and
// as they are submitted.
type stamping struct {
	mu     sync.Mutex
	stamps map[int64][]stamp.Stamp
	says   func(e *sluice.Event) error
}

func (s *stamping) note(ctx context.Context, e *sluice.Event) error {
	stamp, ok := stamp.Of(ctx, e, 0)
	if !ok || driver.FencingTokenOf(ctx).Lease.Epoch != stamp.Epoch {
		return driver.Reject(errors.New("no stamp in this context"))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stamps[e.Sequence] = append(s.stamps[e.Sequence], stamp)
	return nil
}

func (s *stamping) records(ctx context.Context, e *sluice.Event) ([]*sluice.Event, error) {
	return []*sluice.Event{e}, s.note(ctx, e)
}

func (s *stamping) Submit(ctx context.Context, e *sluice.Event, done func(driver.WriteResult)) {
	err := s.note(ctx, e)
	if err == nil {
		err = s.says(e)
	}
	done(driver.WriteResult{Err: err})
}

// The stamp of a message tells where it comes from, and how far the checkpoint
// had come for certain.
func TestStampOf(t *testing.T) {
	if stamp, ok := stamp.Of(t.Context(), &sluice.Event{}, 0); ok {
		t.Errorf("a context of no delivery gave %+v", stamp)
	}
	stage(t, 1, func(s *scene) {
		var mended atomic.Bool
		sink := &stamping{stamps: map[int64][]stamp.Stamp{}}
		sink.says = func(e *sluice.Event) error {
			if !mended.Load() && e.Sequence == 1 {
				return driver.Reject(errors.New("too large"))
			}
			return nil
		}
		c := enginetest.Must(sluice.New(s.Hub, s.Leases, sluice.AtLeastOnce(s.Store, sink.records, sink, nil), &sluice.Config{Observer: s}))
		ran := make(chan error, 1)
		go func() { ran <- c.Run(s.T.Context()) }()
		s.Send("0", "a", "b", "c")
		time.Sleep(time.Minute)
		s.Send("0", "d")
		time.Sleep(time.Minute)
		mended.Store(true)
		s.RedriveAll()
		time.Sleep(time.Minute)
		s.Send("0", "e")
		time.Sleep(time.Minute)
		s.Send("0", "f")
		time.Sleep(time.Minute)
		if err := errors.Join(c.Stop(s.T.Context()), <-ran); err != nil {
			s.T.Fatal(err)
		}
		made := func(sequence, low int64, retry bool) stamp.Stamp {
			id := stamp.CausationID{Source: sink.stamps[0][0].ID.Source, Partition: "0", Sequence: sequence}
			return stamp.Stamp{ID: id, Epoch: 1, Low: low, Parked: []string{"", "-1/0:1"}[min(low+1, 1)], Redrive: retry}
		}
		want := map[int64][]stamp.Stamp{
			0: {made(0, -1, false), made(0, -1, false)},
			1: {made(1, -1, false), made(1, -1, false), made(1, 3, true), made(1, 3, true)},
			2: {made(2, -1, false), made(2, -1, false)},
			3: {made(3, 2, false), made(3, 2, false)},
			4: {made(4, 3, false), made(4, 3, false)},
			5: {made(5, 4, false), made(5, 4, false)},
		}
		for i := range want[5] {
			want[5][i].Parked = "" // its retry was settled before the last checkpoint
		}
		if !maps.EqualFunc(sink.stamps, want, slices.Equal) {
			s.T.Errorf("stamps %+v\nwant %+v", sink.stamps, want)
		}
	})
}

// A stamp names the dead letters before the watermark, those that an earlier
// owner left too, and the latest if there are many. A dead letter of an earlier
// incarnation of the topic keeps its id.
func TestStampNamesDeadLetters(t *testing.T) {
	stage(t, 1, func(s *scene) {
		sink := &stamping{stamps: map[int64][]stamp.Stamp{}}
		sink.says = func(e *sluice.Event) error {
			if string(e.Body) == "reject" {
				return driver.Reject(errors.New("too large"))
			}
			return nil
		}
		run := func(owner string) {
			c := enginetest.Must(sluice.New(s.Hub, s.Leases, sluice.AtLeastOnce(s.Store, sink.records, sink, nil), &sluice.Config{Owner: owner, Observer: s}))
			ran := make(chan error, 1)
			go func() { ran <- c.Run(s.T.Context()) }()
			time.Sleep(time.Minute)
			if err := errors.Join(c.Stop(s.T.Context()), <-ran); err != nil {
				s.T.Error(err)
			}
		}
		last := func(sequence int64) stamp.Stamp { return sink.stamps[sequence][len(sink.stamps[sequence])-1] }
		s.Send("0", "good", "reject", "good", "reject")
		run("a")
		s.Send("0", "good", "reject", "reject", "good")
		run("b")
		s.Send("0", "good")
		run("c")
		if got := []string{last(0).Parked, last(4).Parked, last(8).Parked}; !slices.Equal(got, []string{"", "-1/0:1,2", "-1/0:1,2,2+1"}) {
			s.T.Errorf("named %q", got)
		}
		for range 20 {
			s.Send("0", "reject")
		}
		run("d")
		s.Send("0", "good")
		run("e")
		if got := last(29); got.Low != 28 || got.Parked != "12/0:13+15" {
			s.T.Errorf("of 24 dead letters named %q at %d, want the latest 16 and the number of the one before", got.Parked, got.Low)
		}
		before := last(29).ID.Source
		s.Hub.Recreate()
		sink.says = func(*sluice.Event) error { return nil }
		enginetest.Must(s.Store.Reset(s.T.Context(), enginetest.Group, "0", enginetest.Must(s.Hub.Describe(s.T.Context())).Incarnation, driver.Origin, "set"))
		s.RedriveAll()
		s.Send("0", "good", "good")
		run("f")
		if now := last(0).ID.Source; len(s.Letters()) != 0 || now == before {
			s.T.Errorf("%d dead letters are left; ids from %q before and %q after the topic was made anew", len(s.Letters()), before, now)
		}
		for sequence, stamps := range sink.stamps {
			for _, stamp := range stamps {
				if stamp.Redrive != (stamp.ID.Source == before && stamp.Epoch > 5) {
					s.T.Errorf("event %d has the stamp %+v: retries are those of the topic before", sequence, stamp)
				}
			}
		}
	})
}
