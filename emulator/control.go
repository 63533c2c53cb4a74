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

	"github.com/sluice-go/sluice/emulator/internal/faults"
)

// Control endpoints are for test programs that can't call the methods of a server: plain HTTP with JSON, on loopback only. All of them have
//
//	GET    /faults             the faults and their hits
//	POST   /faults             adds one
//	DELETE /faults             removes all
//	DELETE /faults/{id}        removes one
//
// Those of AMQP servers have besides
//
//	POST   /faults             {"kind": "server-busy", "on": "send", "hub": "flights", "partition": "0", "times": 3, "delay": "2s"}
//	POST   /connections/drop   {} cuts all connections
//	POST   /links/detach       {"hub": "flights", "partition": "0"} detaches links

const (
	maxControlBody = 64 << 10
	controlTimeout = 10 * time.Second
	httpPatience   = time.Second // for requests in progress, when the server closes
)

// httpServer serves HTTP at one address until it is closed. There may be none: nil.
type httpServer struct {
	at     net.Listener
	server *http.Server
	done   chan struct{}
}

// serveHTTP serves over l, which may be a listener above at.
func serveHTTP(at, l net.Listener, server *http.Server, what string, log *slog.Logger) *httpServer {
	h := &httpServer{at: at, server: server, done: make(chan struct{})}
	server.ErrorLog = slog.NewLogLogger(log.Handler(), slog.LevelDebug)
	go func() {
		defer close(h.done)
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Error(what+" stopped", "error", err)
		}
	}()
	return h
}

// close lets requests in progress finish for a moment.
func (h *httpServer) close() error {
	if h == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), httpPatience)
	defer cancel()
	err := h.server.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = h.server.Close()
	}
	<-h.done
	return err
}

func (h *httpServer) addr() string {
	if h == nil {
		return ""
	}
	return h.at.Addr().String()
}

// startControl listens at addr, which must be on loopback: whoever can connect is obeyed. With addr "" there is no endpoint.
func startControl(addr string, handler http.Handler, log *slog.Logger) (*httpServer, error) {
	if addr == "" {
		return nil, nil
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	if a, ok := l.Addr().(*net.TCPAddr); !ok || !a.IP.IsLoopback() {
		l.Close()
		return nil, fmt.Errorf("the control endpoint can't be at %s: choose an address on loopback, such as 127.0.0.1:0", addr)
	}
	server := &http.Server{Handler: local(handler), ReadTimeout: controlTimeout, WriteTimeout: controlTimeout}
	return serveHTTP(l, l, server, "control endpoint", log), nil
}

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

func wireOf(s faults.State[Fault]) wireFault {
	f := s.Fault
	return wireFault{ID: s.ID, Kind: f.Kind, On: f.On, Hub: f.Hub, Partition: f.Partition, Times: f.Times, Delay: wireDuration(f.Delay), Hits: s.Hits}
}

func (w *wireFault) fault() (Fault, error) {
	delay, err := parseWireDuration(w.Delay)
	return Fault{Kind: w.Kind, On: w.On, Hub: w.Hub, Partition: w.Partition, Times: w.Times, Delay: delay}, err
}

// wireDuration is a duration in JSON; 0 is left out.
func wireDuration(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}

func parseWireDuration(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("durations are written such as 1.5s: %.40q", text)
	}
	return d, nil
}

// wireTarget is what the other requests are about.
type wireTarget struct {
	Hub       string `json:"hub"`
	Partition string `json:"partition"`
	Before    int64  `json:"before"`
}

// controlMux serves what the AMQP servers have in common.
func (f *front) controlMux() *http.ServeMux {
	mux := http.NewServeMux()
	handleFaults(mux, &f.faults.set, wireOf, func(w wireFault) (int, error) {
		fault, err := w.fault()
		if err != nil {
			return 0, err
		}
		return f.faults.Add(fault)
	})
	mux.HandleFunc("POST /connections/drop", command(func(struct{}) (any, error) {
		return map[string]int{"connections": f.DropConnections()}, nil
	}))
	mux.HandleFunc("POST /links/detach", command(func(t wireTarget) (any, error) {
		return map[string]int{"links": f.DetachLinks(t.Hub, t.Partition)}, nil
	}))
	return mux
}

// handleFaults serves /faults; W is a fault in JSON.
func handleFaults[F, W any](mux *http.ServeMux, set *faults.Set[F], show func(faults.State[F]) W, add func(W) (id int, err error)) {
	mux.HandleFunc("GET /faults", func(w http.ResponseWriter, _ *http.Request) {
		list := []W{}
		for _, f := range set.List() {
			list = append(list, show(f))
		}
		respond(w, http.StatusOK, list)
	})
	mux.HandleFunc("POST /faults", command(func(w W) (any, error) {
		id, err := add(w)
		return map[string]int{"id": id}, err
	}))
	mux.HandleFunc("DELETE /faults", func(w http.ResponseWriter, _ *http.Request) {
		set.Clear()
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("DELETE /faults/{id}", func(w http.ResponseWriter, r *http.Request) {
		if id, err := strconv.Atoi(r.PathValue("id")); err != nil || !set.Remove(id) {
			respond(w, http.StatusNotFound, map[string]string{"error": "no such fault"})
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
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
