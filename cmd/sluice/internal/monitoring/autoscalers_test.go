package monitoring

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/autoscale/config"
)

// TestLiveWithoutEvents: a part that has its turns is live for as long as others give it nothing to
// do, such as the logic while the collector is down. One that does not is not.
func TestLiveWithoutEvents(t *testing.T) {
	for name, turns := range map[string]func(a *Autoscalers){
		"rounds":       func(a *Autoscalers) { a.OnRound("orders") },
		"failed reads": func(a *Autoscalers) { a.OnReading("orders", autoscale.Point{Metric: "backlog"}, errors.New("down")) },
		"none":         nil,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, err := (&Monitoring{}).Autoscalers("orders.yaml")
				if err != nil {
					t.Fatal(err)
				}
				a.OnRole("orders.yaml", "orders", autoscale.Limits{Interval: time.Minute}, config.Active)
				for range 60 {
					time.Sleep(time.Minute)
					if turns != nil {
						turns(a)
					}
				}
				for path, want := range map[string]int{"/livez": http.StatusOK, "/readyz": http.StatusOK} {
					if path == "/livez" && turns == nil {
						want = http.StatusServiceUnavailable
					}
					w := httptest.NewRecorder()
					a.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, http.NoBody))
					if w.Code != want {
						t.Errorf("%s answers %d: %s", path, w.Code, w.Body)
					}
				}
			})
		})
	}
}
