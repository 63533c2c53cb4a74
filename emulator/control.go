package emulator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"time"
)

// The control endpoint is for test programs that can't call the methods of a [Server]: plain HTTP with JSON, on loopback only.
//
//	GET    /faults             the faults and their hits
//	POST   /faults             {"kind": "server-busy", "on": "send", "hub": "flights", "partition": "0", "times": 3, "delay": "2s"} adds one
//	DELETE /faults             removes all
//	DELETE /faults/{id}        removes one
//	POST   /connections/drop   {} cuts all connections
//	POST   /links/detach       {"hub": "flights", "partition": "0"} detaches links
//	POST   /hubs/trim          {"hub": "flights", "partition": "0", "before": 100} removes events as retention does
//	POST   /hubs/recreate      {"hub": "flights"} deletes a hub and creates it again

const (
	maxControlBody = 64 << 10
	controlTimeout = 10 * time.Second
)

// wireFault is a fault in JSON.
type wireFault struct {
	ID        int       `json:"id,omitempty"`
	Kind      FaultKind `json:"kind"`
	On        Operation `json:"on"`
	Hub       string    `json:"hub,omitempty"`
	Partition string    `json:"partition,omitempty"`
	Times     int       `json:"times,omitempty"`
	Delay     string    `json:"delay,omitempty"`
	Hits      int       `json:"hits"`
}

// wireTarget is what the other requests are about.
type wireTarget struct {
	Hub       string `json:"hub"`
	Partition string `json:"partition"`
	Before    int64  `json:"before"`
}

// startControl listens at addr, which must be on loopback: whoever can connect is obeyed.
func (s *Server) startControl(addr string) error {
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
func (s *Server) stopControl() error {
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

func (s *Server) controlHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /faults", func(w http.ResponseWriter, _ *http.Request) {
		list := []wireFault{}
		for _, f := range s.faults.List() {
			wire := wireFault{
				ID: f.ID, Kind: f.Fault.Kind, On: f.Fault.On, Hub: f.Fault.Hub, Partition: f.Fault.Partition, Times: f.Fault.Times, Hits: f.Hits,
			}
			if f.Fault.Delay > 0 {
				wire.Delay = f.Fault.Delay.String()
			}
			list = append(list, wire)
		}
		respond(w, http.StatusOK, list)
	})
	mux.HandleFunc("POST /faults", command(func(f wireFault) (any, error) {
		fault := Fault{Kind: f.Kind, On: f.On, Hub: f.Hub, Partition: f.Partition, Times: f.Times}
		if f.Delay != "" {
			var err error
			if fault.Delay, err = time.ParseDuration(f.Delay); err != nil {
				return nil, fmt.Errorf("the delay must be a duration such as 1.5s: %.40q", f.Delay)
			}
		}
		id, err := s.faults.Add(fault)
		return map[string]int{"id": id}, err
	}))
	mux.HandleFunc("DELETE /faults", func(w http.ResponseWriter, _ *http.Request) {
		s.faults.Clear()
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("DELETE /faults/{id}", func(w http.ResponseWriter, r *http.Request) {
		if id, err := strconv.Atoi(r.PathValue("id")); err != nil || !s.faults.Remove(id) {
			respond(w, http.StatusNotFound, map[string]string{"error": "no such fault"})
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("POST /connections/drop", command(func(struct{}) (any, error) {
		return map[string]int{"connections": s.DropConnections()}, nil
	}))
	mux.HandleFunc("POST /links/detach", command(func(t wireTarget) (any, error) {
		return map[string]int{"links": s.DetachLinks(t.Hub, t.Partition)}, nil
	}))
	mux.HandleFunc("POST /hubs/trim", command(func(t wireTarget) (any, error) {
		return struct{}{}, s.Trim(t.Hub, t.Partition, t.Before)
	}))
	mux.HandleFunc("POST /hubs/recreate", command(func(t wireTarget) (any, error) { return struct{}{}, s.Recreate(t.Hub) }))
	return local(mux)
}

// local refuses what a web page of another host could have sent: the browser names the page's origin, or the page's host with which it has been
// led to a loopback address.
func local(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host
		}
		if ip := net.ParseIP(host); r.Header.Get("Origin") != "" || host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			respond(w, http.StatusForbidden, map[string]string{"error": "requests of web pages are refused, and such for another host than this"})
			return
		}
		next.ServeHTTP(w, r)
	})
}

// command handles a request with a JSON body.
func command[T any](f func(T) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var arg T
		body := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxControlBody))
		body.DisallowUnknownFields()
		err := body.Decode(&arg)
		if err == nil {
			if _, more := body.Token(); !errors.Is(more, io.EOF) {
				err = errors.New("more than one JSON value")
			}
		}
		if err != nil {
			respond(w, http.StatusBadRequest, map[string]string{"error": fmt.Sprintf("the body must be JSON: %v", err)})
			return
		}
		answer, err := f(arg)
		if err != nil {
			respond(w, http.StatusBadRequest, map[string]string{"error": err.Error()})
			return
		}
		respond(w, http.StatusOK, answer)
	}
}

func respond(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // an error is the client's
}
