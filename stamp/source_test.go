package stamp_test

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine/enginetest"
	"github.com/sluice-go/sluice/sluicetest"
	"github.com/sluice-go/sluice/stamp"
)

// A consumer that no stage feeds believes no stamp: anyone who can send to the hub could
// otherwise suppress the events of others.
func TestForgedStampWithoutSource(t *testing.T) {
	stage(t, 1, func(s *scene) {
		s.Hub.Append("0", message(stampOf(math.MaxInt64-1, math.MaxInt64, math.MaxInt64-2)))
		for n := range int64(1000) {
			s.Hub.Append("0", message(stampOf(n, 1, n-1)))
		}
		s.StampsFrom = nil
		if rows := s.pass(100, 1); len(rows) != 1001 {
			t.Errorf("%d events were handled, want all 1,001", len(rows))
		}
		s.wantFailures(`it reads the topic "flights": duplicates of its messages are not detected: if this stage feeds the consumer, name the topic that it reads in Config.StampsFrom`)
	})
}

// wantFailures fails the test unless the reported failures contain these texts, one each.
func (s *scene) wantFailures(texts ...string) {
	s.T.Helper()
	got := s.Observations(driver.KindFailed)
	if len(got) != len(texts) {
		s.T.Errorf("%d failures were reported, want %d with %q: %v", len(got), len(texts), texts, got)
		return
	}
	for i, text := range texts {
		if !strings.Contains(got[i].Err.Error(), text) {
			s.T.Errorf("reported %q, want %q in it", got[i].Err, text)
		}
	}
}

// A watermark or an epoch that no emitter can have reached suppresses nothing and is
// reported. The ids of such stamps still count.
func TestImplausibleStamp(t *testing.T) {
	for name, forged := range map[string]stamp.Stamp{
		"epoch and watermark":      stampOf(math.MaxInt64-1, math.MaxInt64, math.MaxInt64-2),
		"watermark":                stampOf(1<<60, 1, 1<<60-1),
		"watermark within decades": stampOf(1<<40, 1, 1<<40-1),
		"epoch":                    stampOf(5000, 1<<40, 60),
	} {
		t.Run(name, func(t *testing.T) {
			stage(t, 1, func(s *scene) {
				var want []int64
				for n := range int64(1000) {
					s.Hub.Append("0", message(stampOf(n, 1, n-1)))
					want = append(want, n)
					if n == 50 {
						s.Hub.Append("0", message(forged), message(forged))
						want = append(want, 50+1)
					}
				}
				for i := 52; i < len(want); i++ {
					want[i] = int64(i + 1)
				}
				if rows := s.pass(100, 2); !slices.Equal(rows, want) {
					t.Errorf("%d events were handled, want %d: each id once", len(rows), len(want))
				}
				if got := s.Observations(driver.KindFailed); len(got) == 0 || !strings.Contains(got[len(got)-1].Err.Error(), "implausible stamp") {
					t.Errorf("reported %v, want an implausible stamp", got)
				}
			})
		})
	}
}

// An origin whose first stamp was not believed, before a restart, has no watermark that the next
// one could be too far above.
func TestFirstStampAfterAnImplausibleOne(t *testing.T) {
	stage(t, 1, func(s *scene) {
		s.Hub.Append("0", message(stampOf(5, 1<<40, 4)))
		s.pass(100, 1)
		s.Hub.Append("0", message(stampOf(1<<33, 1000, 1<<33-1)), message(stampOf(7, 1000, 6)))
		if rows := s.pass(100, 1); !slices.Equal(rows, []int64{0, 1}) {
			t.Errorf("handled %v, want all but the one below the watermark", rows)
		}
		s.wantFailures("implausible stamp")
	})
}

// A watermark may be far above the last one if enough time has passed.
func TestPlausibleAfterTime(t *testing.T) {
	stage(t, 1, func(s *scene) {
		s.Hub.Append("0", message(stampOf(5, 1, 4)))
		time.Sleep(24 * time.Hour)
		s.Hub.Append("0", message(stampOf(1<<33, 1000, 1<<33-1)), message(stampOf(7, 1000, 6)))
		if rows := s.pass(100, 1); !slices.Equal(rows, []int64{0, 1}) {
			t.Errorf("handled %v, want all but the one below the watermark", rows)
		}
		s.wantFailures()
	})
}

// A restart does not change what is plausible: the time counts from when the watermark was
// reached, not from the last message.
func TestPlausibleAfterRestart(t *testing.T) {
	stage(t, 1, func(s *scene) {
		s.Hub.Append("0", message(stampOf(5, 1, 4)))
		s.pass(100, 1)
		time.Sleep(24 * time.Hour)
		s.Hub.Append("0", message(stampOf(6, 1, 4))) // a late write of the owner before
		s.pass(100, 1)
		s.Hub.Append("0", message(stampOf(1<<33, 1000, 1<<33-1)), message(stampOf(7, 1000, 6)))
		if rows := s.pass(100, 1); !slices.Equal(rows, []int64{0, 1, 2}) {
			t.Errorf("handled %v, want all but the one below the watermark", rows)
		}
		s.wantFailures()
	})
}

// A watermark without an epoch bounds the next one after a restart too.
func TestImplausibleAfterRestart(t *testing.T) {
	stage(t, 1, func(s *scene) {
		s.Hub.Append("0", message(stampOf(5, 0, 4)))
		s.pass(100, 1)
		s.Hub.Append("0", message(stampOf(1<<40, 0, 1<<40-1)), message(stampOf(7, 0, 4)))
		if rows := s.pass(100, 1); !slices.Equal(rows, []int64{0, 1, 2}) {
			t.Errorf("handled %v, want all: the watermark is forged", rows)
		}
		s.wantFailures("implausible stamp")
	})
}

// While a key is replaced, stamps with either key count.
func TestTwoStampKeys(t *testing.T) {
	key, old := []byte("the key of both stages"), []byte("the key before this one")
	reader := stamp.NewReader([]stamp.Source{{Topic: "flights", Key: key}, {Topic: "flights", Key: old}})
	for i, signer := range [][]byte{key, old, []byte("the key of another")} {
		e := message(stampOf(5, 1, 4))
		stamp.Sign(e.Properties, signer)
		if _, there, err := reader.Read(e.Properties); there != (i < 2) {
			t.Errorf("signed with %q: %v, %v", signer, there, err)
		}
	}
}

// With a key only signed stamps count.
func TestSignedStamps(t *testing.T) {
	key, other := []byte("the key of both stages"), []byte("the key of another")
	signed := func(s stamp.Stamp, key []byte) *sluice.Event {
		e := message(s)
		if !stamp.Sign(e.Properties, key) {
			t.Fatal("not signed")
		}
		return e
	}
	changed := func(name string, to any) *sluice.Event {
		e := signed(stampOf(20, 1, 19), key)
		e.Properties[name] = to
		return e
	}
	stage(t, 1, func(s *scene) {
		s.StampsFrom[0].Key = key
		s.Hub.Append("0",
			signed(stampOf(5, 1, 4), key), signed(stampOf(5, 1, 4), key), // a duplicate
			message(stampOf(6, 1, 5)), message(stampOf(6, 1, 5)), // not signed
			signed(stampOf(9, 1, 8), other), // another's
			changed("sluice-low", int64(18)), changed("sluice-epoch", int64(2)), changed("sluice-parked", "-1/0:5"),
			changed("sluice-retry", true), changed("sluice-id", "flights@12ab/0/21/0"), changed("sluice-signature", 7),
			signed(stampOf(10, 1, 9), key), signed(stampOf(7, 1, 5), key), // below the watermark
		)
		if rows := s.pass(100, 1); !slices.Equal(rows, []int64{0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}) {
			t.Errorf("handled %v, want all but the second and the last", rows)
		}
		s.wantFailures("without a valid signature")
	})
}

// Stamps count if their stage is named, whatever the names of other topics begin with.
func TestStampSources(t *testing.T) {
	properties := func(source string) map[string]any {
		p := map[string]any{}
		stamp.Stamp{ID: stamp.CausationID{Source: source, Partition: "0", Sequence: 5}, Epoch: 1, Low: 4}.SetTo(p)
		return p
	}
	long := strings.Repeat("x", 80)
	for _, c := range []struct {
		source, topic string
		want          bool
	}{
		{"raw@0123456789abcdef", "raw", true},
		{"raw@0123456789abcdef", "ra", false},
		{"Raw@0123456789abcdef", "rAW", true},
		{"raw@0123456789abcdef", "", false},
		{"raw@west@0123456789abcdef", "raw", false},
		{"raw@west@0123456789abcdef", "raw@west", true},
		{"a b@0123456789abcdef", "a b", true},
		{long[:64] + "@0123456789abcdef", long, true},
	} {
		_, there, err := stamp.NewReader([]stamp.Source{{Topic: "other"}, {Topic: c.topic}}).Read(properties(c.source))
		if there != c.want || c.want == (err != nil) {
			t.Errorf("stamp of %s for topic %q: %v, %v, want %v", c.source, c.topic, there, err, c.want)
		}
	}
	for _, bad := range []stamp.Source{{}, {Topic: "raw", Key: []byte("short")}} {
		if _, err := sluice.New(sluicetest.NewHub(enginetest.Group, 1), enginetest.NewLedger(), sluice.Transactional(&sluicetest.Store{}, sluice.Each(enginetest.Insert)), &sluice.Config{StampsFrom: []stamp.Source{bad}}); err == nil {
			t.Errorf("stamp source %+v: no error", bad)
		}
	}
}
