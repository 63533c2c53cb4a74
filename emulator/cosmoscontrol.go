package emulator

import (
	"net/http"
	"time"

	"github.com/sluice-go/sluice/emulator/internal/cosmosdb"
)

// wireCosmosFault is a fault in JSON.
type wireCosmosFault struct {
	ID         int    `json:"id,omitempty"`
	Kind       string `json:"kind"`
	Status     int    `json:"status,omitempty"`
	Substatus  int    `json:"substatus,omitempty"`
	RetryAfter string `json:"retryAfter,omitempty"`
	On         string `json:"on,omitempty"`
	Container  string `json:"container,omitempty"`
	Range      string `json:"range,omitempty"`
	Each       bool   `json:"each,omitempty"`
	Times      int    `json:"times,omitempty"`
	For        string `json:"for,omitempty"`
	Delay      string `json:"delay,omitempty"`
	Hits       int    `json:"hits"`
}

func (w *wireCosmosFault) fault() (CosmosFault, error) {
	f := CosmosFault{
		Kind: CosmosFaultKind(w.Kind), On: CosmosRequest(w.On), Status: w.Status, Substatus: w.Substatus, Container: w.Container, Range: w.Range, Each: w.Each, Times: w.Times,
	}
	for _, d := range []struct {
		text   string
		target *time.Duration
	}{{w.RetryAfter, &f.RetryAfter}, {w.For, &f.For}, {w.Delay, &f.Delay}} {
		var err error
		if *d.target, err = parseWireDuration(d.text); err != nil {
			return f, err
		}
	}
	return f, nil
}

func wireOfCosmos(s cosmosdb.FaultState) wireCosmosFault {
	f := s.Fault
	return wireCosmosFault{
		ID: s.ID, Kind: string(f.Kind), Status: f.Status, Substatus: f.Substatus, RetryAfter: wireDuration(f.RetryAfter),
		On: string(f.On), Container: f.Container, Range: f.Range, Each: f.Each, Times: f.Times,
		For: wireDuration(f.For), Delay: wireDuration(f.Delay), Hits: s.Hits,
	}
}

// wireContainer is the body of the other requests.
type wireContainer struct {
	Database  string `json:"database"`
	Container string `json:"container"`
	Range     string `json:"range"`
	RU        int    `json:"ru"`
}

func (s *Cosmos) controlHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /stats", func(w http.ResponseWriter, _ *http.Request) { respond(w, http.StatusOK, s.Stats()) })
	mux.HandleFunc("GET /stats/{db}/{name}", func(w http.ResponseWriter, r *http.Request) {
		stats, err := s.ContainerStats(r.PathValue("db"), r.PathValue("name"))
		if err != nil {
			respond(w, http.StatusNotFound, map[string]string{"error": err.Error()})
			return
		}
		respond(w, http.StatusOK, stats)
	})
	handleFaults(mux, s.account.Faults().Set(), wireOfCosmos, func(w wireCosmosFault) (int, error) {
		f, err := w.fault()
		if err != nil {
			return 0, err
		}
		return s.Faults().Add(f)
	})
	mux.HandleFunc("POST /split", command(func(c wireContainer) (any, error) { return struct{}{}, s.Split(c.Database, c.Container, c.Range) }))
	mux.HandleFunc("POST /throughput", command(func(c wireContainer) (any, error) { return struct{}{}, s.SetThroughput(c.Database, c.Container, c.RU) }))
	mux.HandleFunc("GET /regions", func(w http.ResponseWriter, _ *http.Request) { respond(w, http.StatusOK, s.Regions()) })
	mux.HandleFunc("POST /failover", command(func(struct{}) (any, error) { return struct{}{}, s.Failover() }))
	mux.HandleFunc("POST /key/revoke", command(func(struct{}) (any, error) { return struct{}{}, s.RevokeKey(s.Key()) }))
	mux.HandleFunc("POST /key/restore", command(func(struct{}) (any, error) { return struct{}{}, s.RestoreKey(s.Key()) }))
	return mux
}
