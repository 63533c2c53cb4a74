package amqp

import (
	"context"
	"encoding/hex"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
)

// tagged is a source of three messages that the client has to settle, under the tags 1 to 3.
type tagged struct {
	settled map[byte]Outcome
	wait    func() error
	err     error
}

func (s *tagged) open(l *Outgoing) (func(context.Context) error, error) {
	s.settled = make(map[byte]Outcome)
	l.OnSettle(func(tag [16]byte, o Outcome) (func() error, error) {
		s.settled[tag[15]] = o
		return s.wait, s.err
	})
	return func(ctx context.Context) error {
		if _, err := l.WaitCredit(ctx); err != nil {
			return err
		}
		_, err := l.SendTagged(3, 0, func(i int) [16]byte { return [16]byte{15: byte(i + 1)} }, func(b []byte, i int) []byte { return append(b, byte(i)) })
		if err == nil {
			<-ctx.Done()
		}
		return err
	}, nil
}

func TestOutcomes(t *testing.T) {
	bubble(t, "each", func(t *testing.T) {
		source := &tagged{}
		c := opened(t, &testPeer{outgoing: source.open}, nil, nil)
		c.session()
		c.receiver(0)
		c.send(0, credit(0, 0, 10))
		for i := range uint32(3) {
			if p := expect[*transfer](c); p.settled || p.deliveryID != i {
				t.Fatalf("transfer %+v", p)
			}
		}
		c.send(0, &disposition{receiver: true, first: 0, last: 1, state: &deliveryState{}})
		if !reflect.DeepEqual(source.settled, map[byte]Outcome{1: {}, 2: {}}) {
			t.Fatalf("settled %v", source.settled)
		}
		if p := expect[*disposition](c); p.receiver || !p.settled || p.first != 0 || p.last != 1 || p.outcome == nil || p.outcome.Kind != Accepted {
			t.Fatalf("answer %+v", p)
		}
		source.err = Errorf(CondNotAllowed, "not that")
		c.send(0, &disposition{receiver: true, first: 0, last: 1 << 31, state: &deliveryState{kind: Released}})
		if o, ok := source.settled[3]; !ok || o.Kind != Released || len(source.settled) != 3 {
			t.Fatalf("settled %v", source.settled)
		}
		if p := expect[*disposition](c); p.first != 2 || p.outcome.Kind != Rejected {
			t.Fatalf("answer %+v", p)
		}
		c.nothing()
		source.settled = make(map[byte]Outcome)
		c.send(0, &disposition{receiver: true, first: 0, last: 2, settled: true, state: &deliveryState{}})
		if len(source.settled) != 0 {
			t.Fatalf("settled again: %v", source.settled)
		}
	})
}

// A disposition is answered when the outcome's wait has returned, and later ones after it.
func TestOutcomeThatWaits(t *testing.T) {
	bubble(t, "and fails", func(t *testing.T) {
		written := make(chan error)
		source := &tagged{wait: func() error { return <-written }}
		c := opened(t, &testPeer{outgoing: source.open}, nil, nil)
		c.session()
		c.receiver(0)
		c.send(0, credit(0, 0, 10))
		for range 3 {
			expect[*transfer](c)
		}
		for id := range uint32(3) {
			c.send(0, &disposition{receiver: true, first: id, last: id, state: &deliveryState{}})
		}
		if len(source.settled) != 3 {
			t.Fatalf("settled %v", source.settled)
		}
		c.nothing()
		written <- nil
		c.send(0, credit(0, 3, 10)) // the connection is not blocked meanwhile
		if p := expect[*disposition](c); p.first != 0 || p.last != 0 || p.outcome.Kind != Accepted {
			t.Fatalf("answer %+v", p)
		}
		c.nothing()
		written <- Errorf(CondInternal, "the disk is full")
		written <- nil
		if p := expect[*disposition](c); p.first != 1 || p.last != 1 || p.outcome.Kind != Rejected {
			t.Fatalf("answer %+v", p)
		}
		if p := expect[*disposition](c); p.first != 2 || p.outcome.Kind != Accepted {
			t.Fatalf("answer %+v", p)
		}
	})
}

// A deferred attach is answered when the link's function completes it, or refused when that fails.
func TestHeldLink(t *testing.T) {
	for _, refused := range []bool{false, true} {
		bubble(t, fmt.Sprint("refused ", refused), func(t *testing.T) {
			ready := make(chan struct{})
			c := opened(t, &testPeer{outgoing: func(l *Outgoing) (func(context.Context) error, error) {
				l.DeferAttach()
				return func(ctx context.Context) error {
					<-ready
					if refused {
						return Errorf(CondNotAllowed, "no")
					}
					if err := l.CompleteAttach(Map{{Key: Symbol("filter"), Value: "f"}}, Map{{Key: Symbol("property"), Value: "p"}}); err != nil {
						return err
					}
					<-ctx.Done()
					return nil
				}, nil
			}}, nil, nil)
			c.session()
			c.send(0, &attach{name: "l", receiver: true, source: &terminus{address: "node"}})
			c.nothing()
			close(ready)
			a := expect[*attach](c)
			if refused {
				if d := expect[*detach](c); a.source != nil || d.err == nil || d.err.Condition != CondNotAllowed {
					t.Fatalf("attach %+v, detach %+v", a, d)
				}
				return
			}
			if a.source == nil || a.source.filter.String("filter") != "f" || a.properties.String("property") != "p" || a.source.address != "node" {
				t.Fatalf("attach %+v", a)
			}
			c.nothing()
		})
	}
}

func TestOutcomeOf(t *testing.T) {
	encode := func(code uint64, fields ...any) string {
		return hex.EncodeToString(AppendValue(nil, Described{code, List(fields)}))
	}
	info := Map{{Key: Symbol("why"), Value: "so"}}
	for _, v := range []struct {
		name, hex string
		want      Outcome
		final     bool
	}{
		{"accepted", "005324 45", Outcome{}, true},
		{"accepted by name", hex.EncodeToString(AppendValue(nil, Described{Symbol("amqp:accepted:list"), List{}})), Outcome{}, true},
		{"released", "005326 45", Outcome{Kind: Released}, true},
		{"modified", encode(descModified, true, true, info), Outcome{Kind: Modified, Failed: true, Undeliverable: true, Annotations: info}, true},
		{"modified, without fields", "005327 45", Outcome{Kind: Modified}, true},
		{"rejected", encode(descRejected, Described{uint64(descError), List{Symbol("c"), "d", info}}), Outcome{Kind: Rejected, Info: info}, true},
		{"rejected without a reason", "005325 45", Outcome{Kind: Rejected}, true},
		{"received", "005323 45", Outcome{}, false},
		{"not a list", "005325 41", Outcome{Kind: Rejected}, true},
		{"no state", "40", Outcome{}, false},
	} {
		b, err := hex.DecodeString(strings.ReplaceAll(v.hex, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		d := decoder{buf: b}
		if o, final := outcomeOf(d.value()); d.err != nil || final != v.final || !reflect.DeepEqual(o, v.want) {
			t.Errorf("%s: %+v, final %t, %v", v.name, o, final, d.err)
		}
	}
}

func TestArrays(t *testing.T) {
	ids := "e022 02 98" + strings.Repeat("01", 16) + strings.Repeat("02", 16)
	for text, want := range map[string]int{ids: 2, "e002 00 98": 0, "e003 01 5001": -1, "45": -1, "": -1} {
		b, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		got, ok := Array(b).UUIDs()
		if ok != (want >= 0) || ok && len(got) != want || len(got) == 2 && (got[0][0] != 1 || got[1][15] != 2) {
			t.Errorf("%q: %v, %t", text, got, ok)
		}
	}
	d := decoder{buf: AppendValue(nil, []time.Time{time.UnixMilli(1), time.UnixMilli(2)})}
	if a, _ := d.value().(Array); d.err != nil || hex.EncodeToString([]byte(a))[:2] != "f0" || len(a) != 1+8+1+16 {
		t.Errorf("an array of times is % x, %v", a, d.err)
	}
}
