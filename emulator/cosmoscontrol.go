package emulator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"time"
)

// The control endpoint of a Cosmos is for test programs that can't call its methods: plain HTTP with JSON, on loopback only.
//
//	GET    /stats              the account's counts
//	GET    /stats/{db}/{name}  those of a container and its physical partitions
//	GET    /faults             the faults and their hits
//	POST   /faults             {"kind": "status", "status": 429, "retryAfter": "1s", "on": "batch", "container": "db/docs", "range": "0",
//	                           "each": false, "times": 3, "for": "10s", "delay": "2s"} adds one
//	DELETE /faults             removes all
//	DELETE /faults/{id}        removes one
//	POST   /split              {"database": "db", "container": "docs", "range": "0"} divides a physical partition, without range the largest
//	POST   /throughput         {"database": "db", "container": "docs", "ru": 10000} changes the RU per second
//	POST   /key/revoke         {} has the account key refused
//	POST   /key/restore        {} has it accepted again

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
		text string
		to   *time.Duration
	}{{w.RetryAfter, &f.RetryAfter}, {w.For, &f.For}, {w.Delay, &f.Delay}} {
		if d.text == "" {
			continue
		}
		var err error
		if *d.to, err = time.ParseDuration(d.text); err != nil {
			return f, fmt.Errorf("durations are written such as 1.5s: %.40q", d.text)
		}
	}
	return f, nil
}

// startControl listens at addr, which must be on loopback: whoever can connect is obeyed.
func (s *Cosmos) startControl(addr string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	if a, ok := l.Addr().(*net.TCPAddr); !ok || !a.IP.IsLoopback() {
		l.Close()
		return fmt.Errorf("the control endpoint can't be at %s: choose an address on loopback, such as 127.0.0.1:0", addr)
	}
	s.controlAt = l
	s.control = &http.Server{
		Handler: s.controlHandler(), ReadTimeout: controlTimeout, WriteTimeout: controlTimeout,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	s.serve.Go(func() {
		if err := s.control.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.log.Error("control endpoint stopped", "error", err)
		}
	})
	return nil
}

// stopControl lets requests in progress finish.
func (s *Cosmos) stopControl() error {
	if s.control == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if s.control.Shutdown(ctx) == nil {
		return nil
	}
	return s.control.Close()
}

// wireContainer is what the commands are about.
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
	mux.HandleFunc("GET /faults", func(w http.ResponseWriter, _ *http.Request) { respond(w, http.StatusOK, s.wireFaults()) })
	mux.HandleFunc("POST /faults", command(func(w wireCosmosFault) (any, error) {
		f, err := w.fault()
		if err != nil {
			return nil, err
		}
		id, err := s.Faults().Add(f)
		return map[string]int{"id": id}, err
	}))
	mux.HandleFunc("DELETE /faults", func(w http.ResponseWriter, _ *http.Request) {
		s.Faults().Clear()
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("DELETE /faults/{id}", func(w http.ResponseWriter, r *http.Request) {
		if id, err := strconv.Atoi(r.PathValue("id")); err != nil || !s.Faults().Remove(id) {
			respond(w, http.StatusNotFound, map[string]string{"error": "no such fault"})
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("POST /split", command(func(c wireContainer) (any, error) { return struct{}{}, s.Split(c.Database, c.Container, c.Range) }))
	mux.HandleFunc("POST /throughput", command(func(c wireContainer) (any, error) { return struct{}{}, s.SetThroughput(c.Database, c.Container, c.RU) }))
	mux.HandleFunc("POST /key/revoke", command(func(struct{}) (any, error) { return struct{}{}, s.RevokeKey(s.Key()) }))
	mux.HandleFunc("POST /key/restore", command(func(struct{}) (any, error) { return struct{}{}, s.RestoreKey(s.Key()) }))
	return local(mux)
}

func (s *Cosmos) wireFaults() []wireCosmosFault {
	list := []wireCosmosFault{}
	text := func(d time.Duration) string {
		if d == 0 {
			return ""
		}
		return d.String()
	}
	for _, f := range s.Faults().List() {
		list = append(list, wireCosmosFault{
			ID: f.ID, Kind: string(f.Fault.Kind), Status: f.Fault.Status, Substatus: f.Fault.Substatus, RetryAfter: text(f.Fault.RetryAfter),
			On: string(f.Fault.On), Container: f.Fault.Container, Range: f.Fault.Range, Each: f.Fault.Each, Times: f.Fault.Times,
			For: text(f.Fault.For), Delay: text(f.Fault.Delay), Hits: f.Hits,
		})
	}
	return list
}
