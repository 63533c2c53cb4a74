package cosmos

import (
	"net/http"
	"strconv"
	"sync"
	"testing"

	"github.com/sluice-go/sluice/storetest"
)

// conform runs the suite of sinks on the fake account.
func conform(t *testing.T, cfg *Config, record func(i int) Document) {
	storetest.TestSink(t, func(t testing.TB) storetest.SinkHarness[Document] {
		f := newFake(t)
		var mu sync.Mutex
		refused, broken := map[string]bool{}, false
		door := make(chan struct{})
		close(door)
		f.answer = func(w http.ResponseWriter, r *http.Request, batch []fakeOperation) bool {
			mu.Lock()
			d, bad := door, broken
			mu.Unlock()
			<-d
			if bad {
				w.WriteHeader(http.StatusInternalServerError)
			}
			return bad
		}
		f.operation = func(op fakeOperation) map[string]any {
			mu.Lock()
			defer mu.Unlock()
			if id, _ := op.ResourceBody["id"].(string); refused[id] {
				return map[string]any{"statusCode": 400}
			}
			return nil
		}
		set := func(fn func()) {
			mu.Lock()
			defer mu.Unlock()
			fn()
		}
		return storetest.SinkHarness[Document]{
			Sink:   f.open(t, cfg),
			Record: record,
			Written: func(i int) bool {
				f.mu.Lock()
				defer f.mu.Unlock()
				_, ok := f.docs[`["k`+strconv.Itoa(i%97)+`"]/`+strconv.Itoa(i)]
				return ok
			},
			Block: func() (release func()) {
				d := make(chan struct{})
				set(func() { door = d })
				return func() { close(d) }
			},
			Refuse: func(i int) { set(func() { refused[strconv.Itoa(i)] = true }) },
			Break: func() (repair func()) {
				set(func() { broken = true })
				return func() { set(func() { broken = false }) }
			},
		}
	})
}

func TestConformance(t *testing.T) {
	sourced := func(i int) Document {
		d := document(i)
		d.Source = &Source{Partition: "0", Sequence: int64(i)}
		return d
	}
	t.Run("bulk", func(t *testing.T) { conform(t, nil, document) })
	t.Run("conditional", func(t *testing.T) { conform(t, nil, sourced) })
	t.Run("point", func(t *testing.T) { conform(t, &Config{Mode: Point}, document) })
	t.Run("paced", func(t *testing.T) { conform(t, &Config{RU: 100_000}, document) })
}
