package webhook_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/autoscale/target/webhook"
)

// endpoint is a user's endpoint. It loses the responses to the first requests.
type endpoint struct {
	mu        sync.Mutex
	instances int
	lose      int
	orders    []string // key and body of each POST
	seen      map[string]bool
	changes   int
	answer    string // of GET; "": the number
}

func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if r.Header.Get("Authorization") != "Bearer hunter2" {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	if r.Method == http.MethodGet {
		if e.answer == "" {
			fmt.Fprintf(w, `{"instances": %d}`, e.instances)
		} else {
			fmt.Fprint(w, e.answer)
		}
		return
	}
	body, _ := io.ReadAll(r.Body)
	key := r.Header.Get("Idempotency-Key")
	e.orders = append(e.orders, key+" "+string(body))
	var order struct{ To int }
	if err := json.Unmarshal(body, &order); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if !e.seen[key] {
		e.seen[key] = true
		e.changes++
	}
	if e.lose > 0 { // it is under way, and the answer is lost
		e.lose--
		panic(http.ErrAbortHandler)
	}
	e.instances = order.To
}

// slow answers a POST after a minute.
type slow struct{ posts int }

func (s *slow) RoundTrip(r *http.Request) (*http.Response, error) {
	n := 1
	if r.Method == http.MethodPost {
		select {
		case <-time.After(time.Minute):
			s.posts++
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
	if s.posts > 0 {
		n = 2
	}
	return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader(fmt.Sprintf(`{"instances": %d}`, n)))}, nil
}

// TestSlow: a POST may last as long as the scaler allows an attempt.
func TestSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		endpoint := &slow{}
		target, err := webhook.New("http://scale.example/", &webhook.Config{Client: &http.Client{Transport: endpoint}})
		if err != nil {
			t.Fatal(err)
		}
		q := autoscale.Queues{Actions: autoscale.NewMemoryQueue(0), Reports: autoscale.NewMemoryQueue(0)}
		scaler, err := autoscale.NewScaler(&autoscale.Resource{Name: "r", Rule: autoscale.ThresholdRule{}}, target, autoscale.NewMemoryStore(), q, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := q.Actions.Send(t.Context(), []byte(`{"resource": "r", "number": 1, "from": 1, "to": 2}`)); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		if err := scaler.Run(ctx); err != nil || endpoint.posts != 1 {
			t.Errorf("%d requests were carried out, %v; want 1", endpoint.posts, err)
		}
	})
}

func start(t *testing.T) (*endpoint, *webhook.Target) {
	e := &endpoint{instances: 3, seen: map[string]bool{}}
	server := httptest.NewServer(e)
	t.Cleanup(server.Close)
	target, err := webhook.New(server.URL+"/workers?token=hunter2", &webhook.Config{Header: http.Header{"Authorization": {"Bearer hunter2"}}})
	if err != nil {
		t.Fatal(err)
	}
	return e, target
}

// TestAction: a scaler carries an action out although responses are lost; the endpoint
// recognizes duplicates by their key.
func TestAction(t *testing.T) {
	e, target := start(t)
	e.lose = 2
	queues := autoscale.Queues{Actions: autoscale.NewMemoryQueue(0), Reports: autoscale.NewMemoryQueue(0)}
	store := autoscale.NewMemoryStore()
	scaler, err := autoscale.NewScaler(&autoscale.Resource{Name: "orders/eu"}, target, store, queues, &autoscale.ScalerConfig{RetryMin: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	decided := time.Date(2026, 1, 31, 9, 0, 0, 0, time.UTC)
	body, err := json.Marshal(autoscale.Action{Resource: "orders/eu", Number: 17, From: 3, To: 4, Decided: decided, Reason: "much waits"})
	if err == nil {
		err = queues.Actions.Send(t.Context(), body)
	}
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- scaler.Run(t.Context()) }()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(2 * time.Minute); ; <-tick.C {
		o, err := store.Outcome(t.Context(), "orders/eu")
		if err != nil || time.Now().After(end) {
			t.Fatalf("no outcome: %v", err)
		}
		if o != nil {
			if !o.OK() { // some repeats are the scaler's, some are the HTTP client's own
				t.Errorf("outcome %+v", o)
			}
			break
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	const want = `orders%2Feu/17 {"resource":"orders/eu","action":17,"from":3,"to":4,"decided":"2026-01-31T09:00:00Z","reason":"much waits"}`
	if len(e.orders) != 3 || e.changes != 1 || e.instances != 4 {
		t.Errorf("%d orders, %d changes, %d instances", len(e.orders), e.changes, e.instances)
	}
	for _, o := range e.orders {
		if o != want {
			t.Errorf("got  %s\nwant %s", o, want)
		}
	}
}

func TestInstances(t *testing.T) {
	e, target := start(t)
	for answer, want := range map[string]string{
		"": "3 <nil>", `{"instances": 0}`: "0 <nil>", "{}": "is not", `{"instances": -1}`: "is not", `{"instances": "3"}`: "is not", `{"instances": 1.5}`: "is not", "<html>": "is not", "7": "is not",
	} {
		e.mu.Lock()
		e.answer = answer
		e.mu.Unlock()
		n, err := target.Instances(t.Context())
		if got := fmt.Sprint(n, " ", err); !strings.Contains(got, want) || strings.Contains(got, "hunter2") {
			t.Errorf("%s: %s, want %s", answer, got, want)
		}
	}
	if err := target.Scale(t.Context(), 5); err == nil {
		t.Error("scaled without an action")
	}
	if _, err := webhook.New("example.org/x", nil); err == nil {
		t.Error("a URL without a scheme is taken")
	}
}
