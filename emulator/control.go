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
	"syscall"
	"time"

	"github.com/sluice-go/sluice/emulator/internal/faults"
)

// doc.go lists the requests of the control endpoints.

const (
	maxControlBody  = 64 << 10
	controlTimeout  = 10 * time.Second
	shutdownTimeout = time.Second // to finish requests in progress on Close
)

// httpServer serves HTTP at one address until it is closed. Nil serves nothing.
type httpServer struct {
	listener net.Listener
	server   *http.Server
	done     chan struct{}
}

// serveHTTP serves connections of l, which may wrap the listener at.
func serveHTTP(at, l net.Listener, server *http.Server, what string, log *slog.Logger) *httpServer {
	h := &httpServer{listener: at, server: server, done: make(chan struct{})}
	server.ErrorLog = slog.NewLogLogger(log.Handler(), slog.LevelDebug)
	go func() {
		defer close(h.done)
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Error("server stopped", "server", what, "error", err)
		}
	}()
	return h
}

// close waits for requests in progress, up to a second.
func (h *httpServer) close() error {
	if h == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
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
	return h.listener.Addr().String()
}

// listen listens at a TCP address.
func listen(address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		err = fmt.Errorf("listen at %s: %w: stop the program that uses it, or name another address; port 0 picks a free one", address, syscall.EADDRINUSE)
	}
	return l, err
}

// startControl listens at addr, which must be on loopback, because there is no
// authentication. Without addr there is no endpoint.
func startControl(addr string, handler http.Handler, log *slog.Logger) (*httpServer, error) {
	if addr == "" {
		return nil, nil
	}
	l, err := listen(addr)
	if err != nil {
		return nil, err
	}
	if a, ok := l.Addr().(*net.TCPAddr); !ok || !a.IP.IsLoopback() {
		l.Close()
		return nil, fmt.Errorf("control endpoint at %s: must be an address on loopback, such as 127.0.0.1:0", addr)
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
		return 0, fmt.Errorf("duration %.40q: write it as 1.5s or 2m", text)
	}
	return d, nil
}

// wireTarget is the body of the other requests.
type wireTarget struct {
	Hub       string `json:"hub"`
	Partition string `json:"partition"`
	Before    int64  `json:"before"`
}

// controlMux serves what the AMQP servers have in common.
func (f *namespace) controlMux() *http.ServeMux {
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

// local refuses requests that a web page could have sent: the browser sets the Origin
// header, or Host is that of the page, resolved to a loopback address (DNS rebinding).
func local(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host
		}
		if ip := net.ParseIP(host); r.Header.Get("Origin") != "" || host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			respond(w, http.StatusForbidden, map[string]string{"error": "requests from web pages and for other hosts are refused: use localhost or a loopback address as host"})
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
