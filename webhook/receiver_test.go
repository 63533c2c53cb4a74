package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
)

// receiver is an endpoint that stores the ids of the events that it accepts.
type receiver struct {
	t testing.TB

	mu       sync.Mutex
	stored   map[int64]int  // how often each id was accepted
	events   map[string]int // the same of source and id
	requests []received
	// answer answers a request in place of the receiver if it returns true.
	answer func(w http.ResponseWriter, r *http.Request, ids []int64) bool
}

// postedEvent is what the receiver reads of an event.
type postedEvent struct {
	Source, ID string
	Attempt    int
}

// received is a request as the receiver has seen it.
type received struct {
	header http.Header
	body   string
	events []postedEvent
	ids    []int64
}

func newReceiver(t testing.TB) *receiver {
	return &receiver{t: t, stored: map[int64]int{}, events: map[string]int{}}
}

// ServeHTTP implements [http.Handler].
func (v *receiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the sink has gone
	}
	events, ids, err := eventsOf(r.Header.Get("Content-Type"), body)
	if err != nil {
		v.t.Errorf("request: %v in %.300q", err, body)
	}
	v.mu.Lock()
	v.requests = append(v.requests, received{r.Header, string(body), events, ids})
	answer := v.answer
	v.mu.Unlock()
	if answer != nil && answer(w, r, ids) {
		return
	}
	v.store(r.Header.Get("Sluice-Source"), ids...)
}

func (v *receiver) store(source string, ids ...int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, id := range ids {
		v.stored[id]++
		v.events[source+" "+strconv.FormatInt(id, 10)]++
	}
}

func (v *receiver) has(id int64) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.stored[id] > 0
}

func (v *receiver) set(answer func(w http.ResponseWriter, r *http.Request, ids []int64) bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.answer = answer
}

// sizes returns how many events each request had.
func (v *receiver) sizes() (list []int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, r := range v.requests {
		list = append(list, len(r.ids))
	}
	return list
}

// eventsOf returns the events in a body, and their ids.
func eventsOf(contentType string, body []byte) (list []postedEvent, ids []int64, err error) {
	if strings.HasPrefix(contentType, "application/x-ndjson") {
		list = make([]postedEvent, strings.Count(string(body), "\n"))
		for i, line := range strings.Split(strings.TrimSuffix(string(body), "\n"), "\n") {
			if err := json.Unmarshal([]byte(line), &list[i]); err != nil {
				return nil, nil, err
			}
		}
	} else if err := json.Unmarshal(body, &list); err != nil {
		return nil, nil, err
	}
	for _, e := range list {
		id, err := strconv.ParseInt(e.ID, 10, 64)
		if err != nil {
			return nil, nil, err
		}
		ids = append(ids, id)
	}
	return list, ids, nil
}

// serve starts the receiver and returns its URL.
func (v *receiver) serve() string {
	srv := httptest.NewServer(v)
	v.t.Cleanup(srv.Close)
	return srv.URL
}

// RoundTrip implements [http.RoundTripper] without a network, for bubbles of synctest.
func (v *receiver) RoundTrip(req *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	answered, failed := make(chan struct{}), make(chan any, 1)
	go func() {
		defer close(answered)
		defer func() { failed <- recover() }()
		v.ServeHTTP(w, req)
	}()
	select {
	case <-answered:
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
	if p := <-failed; p != nil { // http.ErrAbortHandler
		return nil, io.ErrUnexpectedEOF
	}
	return w.Result(), nil
}

// open returns a sink, which the test closes.
func open(t testing.TB, url string, cfg *Config) *Sink {
	t.Helper()
	s, err := New(url, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

// message is the message with a number.
func message(i int) *Message {
	return &Message{Event: &sluice.Event{Partition: "0", Sequence: int64(i), Body: fmt.Appendf(nil, `{"n":%d}`, i)}}
}

// post submits messages and returns their results.
func post(t testing.TB, s *Sink, messages ...*Message) []error {
	t.Helper()
	errs := make([]error, len(messages))
	var all sync.WaitGroup
	all.Add(len(messages))
	for i, m := range messages {
		s.Submit(t.Context(), m, func(r driver.WriteResult) { errs[i] = r.Err; all.Done() })
	}
	all.Wait()
	return errs
}

// messages are the messages with the numbers below n.
func messages(n int) []*Message {
	list := make([]*Message, n)
	for i := range list {
		list[i] = message(i)
	}
	return list
}
