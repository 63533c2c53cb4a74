package webhook

import (
	"net/http"
	"slices"
	"testing"

	"github.com/sluice-go/sluice/internal/proof/suite"
	"github.com/sluice-go/sluice/storetest"
)

// conform runs the suite of sinks on a receiver that refuses events with an answer.
func conform(t *testing.T, cfg *Config, refuse func(w http.ResponseWriter, r *http.Request, ids []int64, refused func(id int64) bool, v *receiver)) {
	storetest.TestSink(t, func(t testing.TB) storetest.SinkHarness[*Message] {
		v := newReceiver(t)
		var trouble suite.Trouble[int64]
		v.answer = func(w http.ResponseWriter, r *http.Request, ids []int64) bool {
			if trouble.Begin() {
				w.WriteHeader(http.StatusInternalServerError)
				return true
			}
			if slices.ContainsFunc(ids, trouble.Refuses) {
				refuse(w, r, ids, trouble.Refuses, v)
				return true
			}
			return false
		}
		return storetest.SinkHarness[*Message]{
			Sink:    open(t, v.serve(), cfg),
			Record:  message,
			Written: func(i int) bool { return v.has(int64(i)) },
			Block:   trouble.Block,
			Refuse:  func(i int) { trouble.Refuse(int64(i)) },
			Break:   trouble.Break,
		}
	})
}

func TestConformance(t *testing.T) {
	whole := func(w http.ResponseWriter, r *http.Request, ids []int64, refused func(id int64) bool, v *receiver) {
		w.WriteHeader(http.StatusUnprocessableEntity)
	}
	perEvent := func(w http.ResponseWriter, r *http.Request, ids []int64, refused func(id int64) bool, v *receiver) {
		answerPerEvent(w, r, ids, refused, v)
	}
	t.Run("cloudevents", func(t *testing.T) { conform(t, nil, whole) })
	t.Run("per event", func(t *testing.T) { conform(t, nil, perEvent) })
	t.Run("json", func(t *testing.T) { conform(t, &Config{Format: JSON, MaxBytes: 1000}, whole) })
	t.Run("lines", func(t *testing.T) { conform(t, &Config{Format: JSONLines, MaxEvents: 3}, perEvent) })
}
