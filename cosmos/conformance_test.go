package cosmos

import (
	"net/http"
	"strconv"
	"testing"

	"github.com/sluice-go/sluice/internal/proof/suite"
	"github.com/sluice-go/sluice/storetest"
)

// conform runs the suite of sinks on the fake account.
func conform(t *testing.T, cfg *Config, record func(i int) Document) {
	storetest.TestSink(t, func(t testing.TB) storetest.SinkHarness[Document] {
		f := newFake(t)
		var trouble suite.Trouble[string]
		f.answer = func(w http.ResponseWriter, r *http.Request, batch []fakeOperation) bool {
			broken := trouble.Begin()
			if broken {
				w.WriteHeader(http.StatusInternalServerError)
			}
			return broken
		}
		f.operation = func(op fakeOperation) map[string]any {
			if id, _ := op.ResourceBody["id"].(string); trouble.Refuses(id) {
				return map[string]any{"statusCode": 400}
			}
			return nil
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
			Block:  trouble.Block,
			Refuse: func(i int) { trouble.Refuse(strconv.Itoa(i)) },
			Break:  trouble.Break,
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
