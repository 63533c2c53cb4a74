package web_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/pipeline/web"
	"github.com/sluice-go/sluice/sluicetest"
)

var group = sluice.Group{Namespace: "ns", Topic: "flights", Name: "g"}

// world is a hub, a store and leases in memory, a consumer of them by the real
// engine, and a dashboard.
type world struct {
	t         testing.TB
	hub       *sluicetest.Hub
	store     *sluicetest.Store
	leases    *sluicetest.Leases
	meter     *web.Meter
	gate      *web.PausableSource
	dashboard *web.Dashboard
	mended    atomic.Bool // the handler takes what it has refused so far
}

func newWorld(t testing.TB, partitions int, cfg *web.Config) *world {
	t.Helper()
	w := &world{t: t, hub: sluicetest.NewHub(group, partitions), store: new(sluicetest.Store), leases: new(sluicetest.Leases), meter: web.NewMeter()}
	w.gate = web.NewPausableSource(w.hub)
	if cfg == nil {
		cfg = &web.Config{}
	}
	if cfg.Dir == "" {
		cfg.Dir = t.TempDir()
	}
	var err error
	w.dashboard, err = web.New([]web.Pipeline{{
		Name: "flights", Group: group, Source: w.hub, Leases: w.leases, Checkpoints: w.store, DeadLetters: w.store, Meter: w.meter, Pausable: w.gate,
	}}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// consume runs the engine until the test ends. Events whose body holds "bad"
// are refused, with the body as the reason.
func (w *world) consume() {
	w.t.Helper()
	handler := sluice.Each(func(_ context.Context, tx *sluicetest.Tx, e *sluice.Event) error {
		if bytes.Contains(e.Body, []byte("bad")) && !w.mended.Load() {
			return driver.Reject(errors.New("refused: " + string(e.Body)))
		}
		return tx.Insert("rows", string(e.Body))
	})
	c, err := sluice.New(w.gate, w.leases, sluice.Transactional(w.store, handler), &sluice.Config{
		Owner: "here", Observer: w.meter, AssignEvery: time.Millisecond, RedriveEvery: 10 * time.Millisecond,
		LeaseFor: time.Hour, // a renewal would change rows in the middle of a test
	})
	if err != nil {
		w.t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() { _ = c.Run(context.WithoutCancel(w.t.Context())) })
	w.t.Cleanup(func() {
		if err := c.Stop(context.Background()); err != nil {
			w.t.Error(err)
		}
		running.Wait()
	})
}

// serve listens and serves until the test ends, and returns a client's base.
func (w *world) serve() (*http.Client, string) {
	w.t.Helper()
	s, err := w.dashboard.Listen("127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx) }()
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true,
	}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	w.t.Cleanup(func() {
		client.CloseIdleConnections()
		stop()
		if err := <-ended; err != nil {
			w.t.Error(err)
		}
	})
	return client, s.URL()
}

// ask sends a request to the handler itself, from this machine unless changed.
func (w *world) ask(method, path, body string, change func(*http.Request)) *httptest.ResponseRecorder {
	w.t.Helper()
	r := httptest.NewRequestWithContext(w.t.Context(), method, "https://127.0.0.1:8443"+path, strings.NewReader(body))
	r.RemoteAddr = "127.0.0.1:50000"
	if change != nil {
		change(r)
	}
	rec := httptest.NewRecorder()
	w.dashboard.ServeHTTP(rec, r)
	return rec
}

// answer is ask for JSON, which must succeed.
func (w *world) answer(into any, method, path, body string) {
	w.t.Helper()
	rec := w.ask(method, path, body, nil)
	if rec.Code != http.StatusOK {
		w.t.Fatalf("%s %s: %d %s", method, path, rec.Code, rec.Body)
	}
	if err := json.Unmarshal(rec.Body.Bytes(), into); err != nil {
		w.t.Fatalf("%s %s: %v", method, path, err)
	}
}

// await waits until ok says so.
func await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(2 * time.Minute)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// letters are dead letters as a list shows them.
type letters struct {
	Letters []struct {
		ID        int64
		Status    string
		Partition string
		Sequence  int64
		Error     string
	}
	More bool
}

func (w *world) letters(query string) (so letters) {
	w.t.Helper()
	w.answer(&so, "GET", "/api/dead-letters"+query, "")
	return so
}

// message is a server-sent event.
type message struct{ name, data string }

// listen reads server-sent events until the stream or the test ends.
func listen(t testing.TB, body io.ReadCloser) <-chan message {
	t.Helper()
	messages := make(chan message)
	stop := make(chan struct{})
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(messages)
		var m message
		lines := bufio.NewScanner(body)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			field, value, _ := strings.Cut(lines.Text(), ": ")
			switch field {
			case "event":
				m.name = value
			case "data":
				m.data = value
			case "":
				if m.name == "" {
					continue
				}
				select {
				case messages <- m:
				case <-stop:
					return
				}
				m = message{}
			}
		}
	})
	t.Cleanup(func() { close(stop); body.Close(); reading.Wait() })
	return messages
}
