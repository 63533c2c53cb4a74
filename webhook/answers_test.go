package webhook

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
)

// answerPerEvent answers 207, names the events that are refused, and stores the others.
func answerPerEvent(w http.ResponseWriter, r *http.Request, ids []int64, refused func(int64) bool, v *receiver) {
	type failure struct {
		Index int    `json:"index"`
		Error string `json:"error"`
	}
	var answer struct {
		Failed []failure `json:"failed"`
	}
	for i, id := range ids {
		if refused(id) {
			answer.Failed = append(answer.Failed, failure{i, fmt.Sprintf("event %d\nis bad", id)})
		} else {
			v.store(r.Header.Get("Sluice-Source"), id)
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusMultiStatus)
	json.NewEncoder(w).Encode(answer)
}

// kind names what an error asks of the engine.
func kind(err error) string {
	_, retry := errors.AsType[*driver.RetryError](err)
	switch {
	case err == nil:
		return "done"
	case retry:
		return "retry"
	case errors.Is(err, sluice.ErrOutage):
		return "outage"
	case errors.Is(err, sluice.ErrRejected):
		return "rejected"
	}
	return "counts"
}

// TestAnswers goes through the table in docs/http.md: what each answer to a batch of four
// events means, of which the last is the guilty one, and what the error says.
func TestAnswers(t *testing.T) {
	const guilty = 3
	status := func(code int) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) { http.Error(w, "not\x07 today", code) }
	}
	text := func(code int, contentType, body string, header ...string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", contentType)
			for i := 0; i < len(header); i += 2 {
				w.Header().Add(header[i], header[i+1])
			}
			w.WriteHeader(code)
			fmt.Fprint(w, body)
		}
	}
	zipped := func(body string) string {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		io.WriteString(z, body)
		z.Close()
		return b.String()
	}
	coded := func(coding, body string) func(http.ResponseWriter) {
		return text(200, "application/json", zipped(body), "Content-Encoding", coding)
	}
	undeclared := func(body string) func(http.ResponseWriter) { return text(200, "text/plain", zipped(body)) }
	for _, c := range []struct {
		name   string
		answer func(http.ResponseWriter)
		want   string // of the guilty event
		others string
		says   string
	}{
		{"200", status(200), "done", "done", ""},
		{"202 without a body", func(w http.ResponseWriter) { w.WriteHeader(202) }, "done", "done", ""},
		{"204", func(w http.ResponseWriter) { w.WriteHeader(204) }, "done", "done", ""},
		{"200 with other JSON", text(200, "application/json", `{"ok":true}`), "done", "done", ""},
		{"200 with a list", text(200, "application/json", `[{"index":3}]`), "done", "done", ""},
		{"200 that names nothing", text(200, "application/json", `{"failed":[]}`), "done", "done", ""},
		{"200 that names one", text(200, "application/json", `{"failed":[{"index":3,"error":"bad"}]}`), "rejected", "done", "event 0/3: 200 OK: the receiver rejects the event (bad)"},
		{"207 that names one", text(207, "application/json", `{"failed":[{"index":3,"error":{"code":7}}]}`), "rejected", "done", `207 Multi-Status: the receiver rejects the event ({"code":7})`},
		{"200 that names it as text", text(200, "text/plain", ` {"Failed":[{"Index":3}]}`), "rejected", "done", ""},
		{"207 without a body", func(w http.ResponseWriter) { w.WriteHeader(207) }, "outage", "outage", `207 Multi-Status: the answer must be {"failed":[{"index":0,"error":"…"}]}: it will be retried`},
		{"207 without a list", text(207, "application/json", `{}`), "outage", "outage", `has no list "failed"`},
		{"200 with half an answer", text(200, "application/json", `{"failed":[{"index":3`), "outage", "outage", "unexpected end of JSON input"},
		{"200 with an index too large", text(200, "application/json", `{"failed":[{"index":4}]}`), "outage", "outage", `"failed" has index 4, and the request had 4 events`},
		{"200 with an index below 0", text(200, "application/json", `{"failed":[{"index":-1}]}`), "outage", "outage", "index -1"},
		{"200 without an index", text(200, "application/json", `{"failed":[{"error":"x"}]}`), "outage", "outage", "has no index"},
		{"200 with an endless answer", text(200, "application/json", `{"x":"`+strings.Repeat("x", maxAnswer)), "outage", "outage", "longer than 1 MiB"},
		{"200 cut off", func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, `{"failed":[`)
		}, "outage", "outage", "no answer: 200 OK, and then: unexpected EOF"},
		{"200 with a byte order mark", text(200, "text/plain", "\ufeff{\"failed\":[{\"index\":3}]}"), "rejected", "done", ""},
		{"200 with blanks about the mark", text(200, "application/json", " \n\ufeff {\"failed\":[{\"index\":3}]}"), "rejected", "done", ""},
		{"200 in gzip", coded("gzip", `{"failed":[{"index":3}]}`), "outage", "outage", `200 OK: the answer has the content coding "gzip", though the request asks for none`},
		{"200 in gzip that names nothing", coded("gzip", `{"failed":[]}`), "outage", "outage", "content coding"},
		{"200 in gzip and identity", coded("identity, gzip", "ok"), "outage", "outage", "content coding"},
		{"200 in another coding", text(200, "", "ok", "Content-Encoding", "br"), "outage", "outage", `content coding "br"`},
		{"200 in a second coding", text(200, "", "ok", "Content-Encoding", "identity", "Content-Encoding", "zstd"), "outage", "outage", `content coding "zstd"`},
		{"200 in no coding", text(200, "", "ok", "Content-Encoding", "Identity"), "done", "done", ""},
		{"200 in gzip that no header names", undeclared(`{"failed":[{"index":3}]}`), "outage", "outage", "the answer is no text"},
		{"200 in UTF-16", text(200, "text/plain", "\xff\xfe{\x00\"\x00"), "outage", "outage", "the answer is no text"},
		{"200 with JSON that is none", text(200, "application/json; charset=utf-8", "<html>Sign in</html>"), "outage", "outage", "the answer says that it is JSON, and is not"},
		{"200 with JSON of a kind that is none", text(200, "application/problem+json", "ok"), "outage", "outage", "the answer says that it is JSON, and is not"},
		{"200 with two documents", text(200, "application/json", `[] [{"index":3}]`), "outage", "outage", "the answer says that it is JSON, and is not"},
		{"200 with JSON and no body", text(200, "application/json", ""), "done", "done", ""},
		{"200 with JSON that is a text", text(200, "application/json", `"ok"`), "done", "done", ""},
		{"200 with two lists", text(200, "application/json", `{"failed":[{"index":3}],"Failed":[]}`), "outage", "outage", `the answer has two lists "failed"`},
		{"200 with a list in a text", text(200, "application/json", `"{\"failed\":[{\"index\":3}]}"`), "outage", "outage", `the answer must be {"failed":`},
		{"200 with a list behind a prefix", text(200, "text/plain", ")]}'\n{\"failed\":[{\"index\":3}]}"), "outage", "outage", `the answer must be {"failed":`},
		{"200 with a list in a list", text(200, "application/json", `[{"failed":[{"index":3}]}]`), "outage", "outage", `the answer must be {"failed":`},
		{"301", func(w http.ResponseWriter) { w.WriteHeader(301) }, "outage", "outage", "301 Moved Permanently: redirects are not followed: write the final URL"},
		{"304", func(w http.ResponseWriter) { w.WriteHeader(304) }, "outage", "outage", ""},
		{"400", status(400), "rejected", "done", "event 0/3: 400 Bad Request (not today)"},
		{"409", status(409), "rejected", "done", ""},
		{"413", status(413), "rejected", "done", ""},
		{"415", status(415), "rejected", "done", ""},
		{"422", status(422), "rejected", "done", ""},
		{"424", status(424), "rejected", "done", ""},
		{"401", status(401), "outage", "outage", "check the key, the credential or the rights; it will be retried"},
		{"403", status(403), "outage", "outage", "check the key"},
		{"404", status(404), "outage", "outage", "404 Not Found (not today): check the URL and what is deployed there; it will be retried"},
		{"405", status(405), "outage", "outage", ""},
		{"407", status(407), "outage", "outage", ""},
		{"410", status(410), "outage", "outage", ""},
		{"421", status(421), "outage", "outage", ""},
		{"426", status(426), "outage", "outage", ""},
		{"408", status(408), "outage", "outage", "408 Request Timeout (not today): it will be retried"},
		{"425", status(425), "outage", "outage", ""},
		{"429", status(429), "outage", "outage", ""},
		{"500", status(500), "outage", "outage", "500 Internal Server Error (not today): it will be retried"},
		{"501", status(501), "outage", "outage", ""},
		{"502", status(502), "outage", "outage", ""},
		{"503", status(503), "outage", "outage", ""},
		{"504", status(504), "outage", "outage", ""},
		{"lost connection", func(http.ResponseWriter) { panic(http.ErrAbortHandler) }, "outage", "outage", "no answer: EOF: it will be retried"},
		{"time-out", nil, "outage", "outage", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := newReceiver(t)
			v.answer = func(w http.ResponseWriter, r *http.Request, ids []int64) bool {
				if coding := r.Header.Get("Accept-Encoding"); coding != "identity" {
					t.Errorf("the request accepts the coding %q", coding)
				}
				if !slices.Contains(ids, guilty) {
					return false
				}
				if c.name == "time-out" {
					<-r.Context().Done()
					return true
				}
				c.answer(w)
				return true
			}
			cfg := &Config{MaxEvents: 4, FlushAfter: time.Hour}
			if c.name == "time-out" {
				cfg.Timeout = 20 * time.Millisecond
			}
			errs := post(t, open(t, v.serve()+"/api?code=topsecret", cfg), messages(4)...)
			for i, err := range errs {
				want := c.others
				if i == guilty {
					want = c.want
				}
				if kind(err) != want {
					t.Errorf("event %d: %s, want %s: %v", i, kind(err), want, err)
				}
			}
			if err := errs[guilty]; err != nil && (!strings.Contains(err.Error(), c.says) || strings.ContainsAny(err.Error(), "\n\x07") || strings.Contains(err.Error(), "topsecret") || kind(err) == "rejected" && strings.HasSuffix(err.Error(), "retried")) {
				t.Errorf("got  %v\nwant %s", err, c.says)
			}
		})
	}
}

// TestRedirect: nothing is sent to where a receiver redirects.
func TestRedirect(t *testing.T) {
	for _, status := range []int{301, 302, 303, 307, 308} {
		var other atomic.Int64
		v := newReceiver(t)
		v.answer = func(w http.ResponseWriter, r *http.Request, _ []int64) bool {
			w.Header().Set("Location", "/other?key=topsecret")
			w.WriteHeader(status)
			return true
		}
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/other" {
				other.Add(1)
				return
			}
			v.ServeHTTP(w, r)
		}))
		err := post(t, open(t, srv.URL+"/api", nil), message(1))[0]
		srv.Close()
		if kind(err) != "outage" || other.Load() > 0 || !strings.Contains(err.Error(), "redirects are not followed: write the final URL") || strings.Contains(err.Error(), "topsecret") {
			t.Errorf("%d: %v, %d requests to the other", status, err, other.Load())
		}
	}
}

func TestNoConnection(t *testing.T) {
	for _, url := range []string{"http://127.0.0.1:1/x?code=topsecret", "https://name.invalid/x?code=topsecret"} {
		m := message(0)
		s := open(t, url, nil)
		for range 3 {
			s.accepted.Add(1)
			err := post(t, s, m)[0]
			if kind(err) != "outage" || m.limit != 0 || strings.Contains(err.Error(), "topsecret") {
				t.Errorf("%s: %s, %v", url, kind(err), err)
			}
		}
	}
}

// TestPoison: an event for which the receiver fails in a way that looks like an outage is found by
// smaller batches. Its failures count only while the receiver accepts other events.
func TestPoison(t *testing.T) {
	for name, answer := range map[string]func(w http.ResponseWriter, r *http.Request){
		"500":             func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) },
		"404":             func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404) },
		"lost connection": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"time-out":        func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := newReceiver(t)
				v.answer = func(w http.ResponseWriter, r *http.Request, ids []int64) bool {
					if slices.Contains(ids, 5) {
						answer(w, r)
						return true
					}
					return false
				}
				s := open(t, "http://test", &Config{Transport: v, MaxEvents: 16})
				left := messages(16)
				for range 8 {
					errs := post(t, s, left...)
					var again []*Message
					for i, err := range errs {
						if err != nil {
							again = append(again, left[i])
						}
						if k := kind(err); k == "rejected" || k == "counts" {
							t.Errorf("event %d: %v", left[i].Event.Sequence, err)
						}
					}
					left = again
				}
				if len(left) != 1 || left[0].Event.Sequence != 5 {
					t.Fatalf("%d events are left; requests %v", len(left), v.sizes())
				}
				// No other event is left, so one that was accepted is posted again.
				for range maxStrikes {
					post(t, s, left...)
				}
				if err := post(t, s, left...)[0]; kind(err) != "counts" || !strings.Contains(err.Error(), "event 0/5: ") || strings.Contains(err.Error(), "retried") {
					t.Errorf("while others are accepted: %v", err)
				}
				good := v.answer
				v.set(func(w http.ResponseWriter, _ *http.Request, _ []int64) bool { w.WriteHeader(500); return true })
				if err := post(t, s, left...)[0]; kind(err) != "outage" {
					t.Errorf("while nothing is accepted: %v", err)
				}
				v.set(good)
				if err := post(t, s, left...)[0]; kind(err) != "counts" {
					t.Errorf("when others are accepted again: %v", err)
				}
			})
		})
	}
}

// TestOutageBlamesNobody: while the receiver accepts nothing, no failure counts, alone or not.
func TestOutageBlamesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newReceiver(t)
		v.answer = func(w http.ResponseWriter, _ *http.Request, _ []int64) bool { w.WriteHeader(500); return true }
		s := open(t, "http://test", &Config{Transport: v})
		list := messages(8)
		for range 20 {
			for i, err := range post(t, s, list...) {
				if kind(err) != "outage" {
					t.Errorf("event %d: %v", i, err)
				}
			}
		}
		v.set(nil)
		for i, err := range post(t, s, list...) {
			if err != nil {
				t.Errorf("event %d after the outage: %v", i, err)
			}
		}
	})
}

// TestRetryAfter: no request is sent before the time that the receiver asks for, and events fail at
// once meanwhile.
func TestRetryAfter(t *testing.T) {
	for _, c := range []struct {
		header string
		want   time.Duration
	}{
		{"7", 7 * time.Second}, {"0.5", 500 * time.Millisecond}, {"100000", 5 * time.Minute}, {"1e300", 5 * time.Minute}, {"-5", 0}, {"NaN", 0}, {"soon", 0}, {"", 0},
		{"Sat, 01 Jan 2000 00:00:09 GMT", 9 * time.Second}, {"Sat, 01 Jan 2050 00:00:00 GMT", 5 * time.Minute}, {"Fri, 31 Dec 1999 00:00:00 GMT", 0},
	} {
		synctest.Test(t, func(t *testing.T) { // which begins at midnight, 2000-01-01
			v := newReceiver(t)
			v.answer = func(w http.ResponseWriter, _ *http.Request, _ []int64) bool {
				w.Header().Set("Retry-After", c.header)
				w.WriteHeader(429)
				return true
			}
			s := open(t, "http://test", &Config{Transport: v, FlushAfter: time.Nanosecond})
			began := time.Now()
			if err := post(t, s, message(1))[0]; kind(err) != "outage" {
				t.Errorf("%s: %v", c.header, err)
			}
			asked := time.Now()
			v.set(nil)
			for post(t, s, message(2))[0] != nil {
				if time.Since(asked) < c.want/2 && len(v.sizes()) > 1 {
					t.Errorf("%s: a request after %v", c.header, time.Since(asked))
				}
				time.Sleep(100 * time.Millisecond)
			}
			if waited := time.Since(began); waited < c.want || waited > c.want+200*time.Millisecond {
				t.Errorf("%s: waited %v, want %v", c.header, waited, c.want)
			}
		})
	}
}

// TestQueuedDuringRetryAfter: what is queued behind a request whose answer asks for a wait fails
// too, so that a stop need not wait for it.
func TestQueuedDuringRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newReceiver(t)
		v.answer = func(w http.ResponseWriter, _ *http.Request, ids []int64) bool {
			time.Sleep(time.Second)
			w.Header().Set("Retry-After", "60")
			w.WriteHeader(503)
			return true
		}
		s := open(t, "http://test", &Config{Transport: v, MaxEvents: 2, Concurrency: 1})
		began := time.Now()
		for i, err := range post(t, s, messages(10)...) {
			if kind(err) != "outage" || !strings.Contains(err.Error(), "503") {
				t.Errorf("event %d: %v", i, err)
			}
		}
		if took := time.Since(began); took > 2*time.Second || len(v.sizes()) != 1 {
			t.Errorf("it took %v and %d requests", took, len(v.sizes()))
		}
	})
}

// TestLongestRetryAfter: of the waits that answers ask for, the longest counts. The handler of
// Batches and the post that shows whether the receiver works wait too.
func TestLongestRetryAfter(t *testing.T) {
	asks := func(w http.ResponseWriter, status, seconds int) bool {
		w.Header().Set("Retry-After", strconv.Itoa(seconds))
		w.WriteHeader(status)
		return true
	}
	run := func(name string, test func(t *testing.T, v *receiver, s *Sink)) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := newReceiver(t)
				test(t, v, open(t, "http://test", &Config{Transport: v, MaxEvents: 1, Concurrency: 2}))
			})
		})
	}
	wantSilent := func(t *testing.T, v *receiver, requests int, errs ...error) {
		t.Helper()
		if kind(errors.Join(errs...)) != "outage" || len(v.sizes()) != requests {
			t.Errorf("%v after %d requests, want an outage after %d", errs, len(v.sizes()), requests)
		}
	}
	run("of two requests", func(t *testing.T, v *receiver, s *Sink) {
		v.answer = func(w http.ResponseWriter, _ *http.Request, ids []int64) bool {
			time.Sleep(time.Duration(ids[0]) * time.Second)
			return asks(w, 503, 60/int(ids[0]*ids[0]))
		}
		post(t, s, message(1), message(2))
		time.Sleep(30 * time.Second)
		wantSilent(t, v, 2, post(t, s, message(3))...)
	})
	run("handler", func(t *testing.T, v *receiver, s *Sink) {
		v.answer = func(w http.ResponseWriter, _ *http.Request, _ []int64) bool { return asks(w, 503, 60) }
		handle, b := s.Handler(Messages), sluice.Batch{Group: group, Partition: "0", Epoch: 1, Events: []*sluice.Event{message(1).Event}}
		_ = handle(t.Context(), b)
		time.Sleep(30 * time.Second)
		wantSilent(t, v, 1, handle(t.Context(), b))
	})
	run("witness", func(t *testing.T, v *receiver, s *Sink) {
		v.answer = func(w http.ResponseWriter, _ *http.Request, ids []int64) bool { return ids[0] == 2 && asks(w, 500, 60) }
		bad := message(2)
		post(t, s, message(1))
		post(t, s, bad)
		time.Sleep(time.Minute)
		wantSilent(t, v, 3, post(t, s, bad)...)
	})
}

// TestWitnessThatIsRejected: a receiver that rejects what it has accepted before does not show that
// another event is to blame.
func TestWitnessThatIsRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newReceiver(t)
		broken := false
		v.answer = func(w http.ResponseWriter, r *http.Request, ids []int64) bool {
			switch {
			case ids[0] == 2:
				w.WriteHeader(500)
			case broken:
				answerPerEvent(w, r, ids, func(int64) bool { return true }, v)
			}
			return ids[0] == 2 || broken
		}
		s := open(t, "http://test", &Config{Transport: v})
		bad := message(2)
		post(t, s, message(1))
		broken = true
		for range maxStrikes + 2 {
			if err := post(t, s, bad)[0]; kind(err) != "outage" {
				t.Errorf("got %v, want an outage", err)
			}
		}
	})
}

// TestEndedIsNotSent: a message whose context ends while it is queued is in no request, whatever
// its place in the batch, and the others are.
func TestEndedIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newReceiver(t)
		s := open(t, "http://test", &Config{Transport: v, MaxEvents: 9, FlushAfter: 50 * time.Millisecond})
		results := make([]error, 9)
		for i := range results {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			s.Submit(ctx, message(i), func(r driver.WriteResult) { results[i] = r.Err })
			if i%4 == 0 {
				cancel()
			}
		}
		time.Sleep(time.Second)
		synctest.Wait()
		for i, err := range results {
			if ended := i%4 == 0; ended != errors.Is(err, context.Canceled) || ended == v.has(int64(i)) {
				t.Errorf("message %d: %v, the receiver has it: %v", i, err, v.has(int64(i)))
			}
		}
	})
}

// TestTimeouts: batches become smaller while the receiver is too slow for them, and grow again.
func TestTimeouts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newReceiver(t)
		perEvent := time.Second
		v.answer = func(_ http.ResponseWriter, r *http.Request, ids []int64) bool {
			select {
			case <-time.After(time.Duration(len(ids)) * perEvent):
				return false
			case <-r.Context().Done():
				return true
			}
		}
		s := open(t, "http://test", &Config{Transport: v, MaxEvents: 64, Concurrency: 1, Timeout: 10 * time.Second})
		left := messages(256)
		for rounds := 0; len(left) > 0; rounds++ {
			var again []*Message
			for i, err := range post(t, s, left...) {
				if kind(err) == "outage" {
					again = append(again, left[i])
				} else if err != nil {
					t.Fatalf("event %d: %v", i, err)
				}
			}
			if left = again; rounds > 20 {
				t.Fatalf("%d events are left after 20 rounds; batches %v", len(left), v.sizes())
			}
		}
		perEvent = 0
		for range 60 {
			post(t, s, messages(64)...)
		}
		if sizes := v.sizes(); sizes[len(sizes)-1] != 64 {
			t.Errorf("batches did not grow again: %v", sizes)
		}
	})
}

func FuzzAnswer(f *testing.F) {
	for _, seed := range []string{``, `{"failed":[{"index":0,"error":"x"}]}`, `{"failed":[{"index":1},{"index":1,"error":[1]}]}`, `{"failed":null}`, `{"failed":{}}`, `[]`, `{"failed":[{"index":1.5}]}`, `{`} {
		f.Add(200, []byte(seed), 3)
		f.Add(207, []byte(seed), 1)
	}
	f.Fuzz(func(t *testing.T, status int, body []byte, n int) {
		n = 1 + (n&0xff+0xff)&0xff
		list, err := parseAnswer(&answer{status: status, body: body, json: status%2 == 0}, n)
		seen := map[int]bool{}
		for _, r := range list {
			if err != nil || r.index < 0 || r.index >= n || seen[r.index] {
				t.Fatalf("index %d of %d, %v", r.index, n, err)
			}
			seen[r.index] = true
			if line := shown([]byte(r.text), nil); strings.ContainsAny(line, "\n\r\x00\u2028") || len(line) > 210 {
				t.Fatalf("text %q", line)
			}
		}
		var named struct {
			Failed []struct{ Index *int }
		}
		if json.Unmarshal(body, &named) == nil && strings.HasPrefix(strings.TrimSpace(string(body)), "{") && len(named.Failed) > 0 && err == nil && len(list) == 0 {
			t.Fatalf("events that the answer names count as done: %q", body)
		}
		if status == http.StatusMultiStatus && err == nil && !strings.Contains(strings.ToLower(string(body)), "\"") {
			t.Fatalf("207 with %q counts as done", body)
		}
		retryAfter(string(body), time.Unix(0, 0), time.Minute)
	})
}

// TestClose: a sink that is closed while the receiver does not answer completes every message.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newReceiver(t)
		v.answer = func(_ http.ResponseWriter, r *http.Request, _ []int64) bool { <-r.Context().Done(); return true }
		s, err := New("http://test", &Config{Transport: v, MaxEvents: 2, Concurrency: 1})
		if err != nil {
			t.Fatal(err)
		}
		results := make(chan error, 10)
		for i := range 10 {
			s.Submit(t.Context(), message(i), func(r driver.WriteResult) { results <- r.Err })
		}
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("close: %v", err)
		}
		for range 10 {
			if err := <-results; kind(err) != "outage" || !errors.Is(err, ErrClosed) {
				t.Errorf("got %v", err)
			}
		}
		s.Submit(t.Context(), message(11), func(r driver.WriteResult) { results <- r.Err })
		if err := <-results; !errors.Is(err, ErrClosed) {
			t.Errorf("after close: %v", err)
		}
	})
}
