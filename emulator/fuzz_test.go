package emulator

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/emulator/internal/eventhubs"
	"github.com/sluice-go/sluice/internal/amqp"
)

// Whatever is asked of the control endpoint, it answers with JSON and the right status,
// keeps its limits, and obeys no web page.
func FuzzControl(f *testing.F) {
	for _, s := range []struct{ method, path, host, origin, body string }{
		{"GET", "/faults", "localhost:9", "", ""},
		{"POST", "/faults", "127.0.0.1", "", `{"kind": "server-busy", "on": "send", "hub": "h", "partition": "0", "times": 3, "delay": "2s"}`},
		{"POST", "/faults", "[::1]:9", "", `{"kind": "drop", "on": "attach"} x`},
		{"DELETE", "/faults/1", "127.9.9.9:1", "", ""},
		{"POST", "/hubs/trim", "localhost", "", `{"hub": "h", "partition": "0", "before": 9223372036854775807}`},
		{"POST", "/hubs/recreate", "localhost", "", `{"hub": "H"}`},
		{"POST", "/links/detach", "localhost", "null", `{}`},
		{"POST", "/connections/drop", "elsewhere.example", "", `{}`},
	} {
		f.Add(s.method, s.path, s.host, s.origin, s.body)
	}
	srv, err := Start([]Hub{{Name: "h", Partitions: 2}}, nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { srv.Close() })
	handler := local(srv.controlHandler())
	f.Fuzz(func(t *testing.T, method, path, host, origin, body string) {
		u, err := url.ParseRequestURI("/" + strings.TrimPrefix(path, "/"))
		if err != nil || method == "" || strings.ToUpper(method) != method {
			return // net/http doesn't let such requests through
		}
		srv.faults.Clear()
		id, err := srv.faults.Add(Fault{Kind: FaultDrop, On: OnAttach})
		if err != nil {
			t.Fatal(err)
		}
		before := srv.faults.List()
		r := httptest.NewRequest(http.MethodGet, "/", strings.NewReader(body))
		r.Method, r.URL, r.Host = method, u, host
		if origin != "" {
			r.Header.Set("Origin", origin)
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)

		after := srv.faults.List()
		loopback := strings.Contains(host, "localhost") || strings.Contains(host, "127.") || strings.Contains(host, ":1") || strings.Contains(host, ":0001")
		if w.Code >= 500 || w.Code < 300 && (origin != "" || !loopback) {
			t.Fatalf("%s %s at %q, origin %q: %d %s", method, u, host, origin, w.Code, w.Body)
		}
		if changed := !reflect.DeepEqual(before, after); changed && w.Code >= 300 {
			t.Fatalf("%s %s was refused with %d, yet the faults are %v", method, u, w.Code, after)
		}
		for i := range after {
			if err := after[i].Fault.validate(); err != nil || after[i].ID < id {
				t.Fatalf("%s %s %q: fault %+v, %v", method, u, body, after[i], err)
			}
		}
		if w.Header().Get("Content-Type") == "application/json" && !json.Valid(w.Body.Bytes()) {
			t.Fatalf("%s %s: not JSON: %s", method, u, w.Body)
		}
		if w.Body.Len() > 1000 {
			t.Fatalf("%s %s: an answer of %d bytes", method, u, w.Body.Len())
		}
	})
}

// An address that is understood is put together of its parts.
func FuzzAddress(f *testing.F) {
	for _, s := range []string{
		"$cbs", "$management", "hub/$management", "amqps://host:5671/hub/", "hub/Partitions/0", "HUB/consumergroups/$Default/PARTITIONS/1",
		"hub/Publishers/p", "", "/", "a//b", "x://", "$cbs/$management",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, address string) {
		n, err := parseAddress(address)
		if err != nil {
			var refusal *amqp.Error
			if !errors.As(err, &refusal) || len(refusal.Description) > 1000 {
				t.Fatalf("%q: %v", address, err)
			}
			return
		}
		if !strings.Contains(address, n.path) || strings.HasPrefix(n.path, "/") || strings.HasSuffix(n.path, "/") {
			t.Fatalf("%q has the path %q", address, n.path)
		}
		var want string
		switch {
		case n.special != "":
			want = strings.TrimPrefix(n.entity+"/"+n.special, "/")
		case n.group != "" || strings.Contains(n.path, "//"):
			want = n.entity + "/ConsumerGroups/" + n.group + "/Partitions/" + n.partition
			if strings.Count(n.path, "/") == 2 {
				want = n.entity + "/Partitions/" + n.partition
			}
		case n.partition != "" || strings.Contains(n.path, "/"):
			want = n.entity + "/Partitions/" + n.partition
		default:
			want = n.entity
		}
		if !strings.EqualFold(n.path, want) {
			t.Fatalf("%q became %+v, which is %q", address, n, want)
		}
	})
}

// A start position that is understood is one of the partition's, or refused by name.
func FuzzSelector(f *testing.F) {
	for _, s := range []string{
		"amqp.annotation.x-opt-offset > '@latest'", "amqp.annotation.x-opt-offset >= '-1'", "amqp.annotation.x-opt-offset > '41'",
		"amqp.annotation.x-opt-sequence-number >= '1'", "amqp.annotation.x-opt-sequence-number > '-2'",
		"amqp.annotation.x-opt-enqueued-time >= '1772366400000'", "amqp.annotation.x-opt-enqueuedtimeutc > 0",
		"amqp.annotation.x-opt-offset > ''", "x > '1' > '2'", "amqp.annotation.x-opt-offset = '1'",
	} {
		f.Add(s)
	}
	broker, err := eventhubs.Open("", []eventhubs.Config{{Name: "h", Partitions: 1}}, nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { broker.Close() })
	h, _ := broker.Hub("h")
	p, _ := h.Partition("0")
	if _, err := p.Append(f.Context(), make([]eventhubs.Message, 5)); err != nil {
		f.Fatal(err)
	}
	if err := p.Trim(2); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, selector string) {
		start, err := startOf(amqp.Map{{Key: amqp.Symbol(selectorName), Value: amqp.Described{Descriptor: amqp.Symbol(selectorName), Value: selector}}})
		if err != nil {
			var refusal *amqp.Error
			if !errors.As(err, &refusal) || len(refusal.Description) > 1000 {
				t.Fatalf("%q: %v", selector, err)
			}
			return
		}
		next, err := p.Seek(start)
		var refused *eventhubs.StartError
		switch {
		case errors.As(err, &refused):
		case err != nil:
			t.Fatalf("%q: %v", selector, err)
		case next < 2 || next > 5:
			t.Fatalf("%q begins with event %d, of events 2 to 4", selector, next)
		}
	})
}

// FuzzEvent checks that an event arrives as its producer sent it, without the
// annotations that belong to the broker, and takes no more room than before.
func FuzzEvent(f *testing.F) {
	plain := (&amqp.Message{MessageID: "m", Properties: amqp.Map{{Key: "a", Value: int64(1)}}, Value: "v"}).Encode(nil)
	annotated := amqp.AppendValue(amqp.AppendSection(nil, amqp.SectionMessageAnnotations), amqp.Map{
		{Key: amqp.Symbol(annKey), Value: "key"}, {Key: amqp.Symbol("own"), Value: int32(7)}, {Key: amqp.Symbol(annOffset), Value: "forged"},
	})
	data := amqp.AppendBinary(amqp.AppendSection(nil, amqp.SectionData), []byte("body"))
	annotated = append(annotated, data...)
	var batch []byte
	for _, m := range [][]byte{plain, annotated} {
		batch = amqp.AppendBinary(amqp.AppendSection(batch, amqp.SectionData), m)
	}
	f.Add(false, plain)
	f.Add(false, annotated)
	f.Add(false, append(amqp.AppendValue(amqp.AppendSection(nil, amqp.SectionHeader), amqp.List{true}), data...))
	f.Add(true, batch)
	f.Fuzz(func(t *testing.T, batched bool, payload []byte) {
		d := amqp.Delivery{Payload: bytes.Clone(payload)}
		if batched {
			d.Format = formatBatch
		}
		var s splitter
		events, err := s.split(d, nil)
		if !bytes.Equal(d.Payload, payload) {
			t.Fatal("the payload was changed")
		}
		if err != nil {
			return
		}
		size := 0
		for i := range events {
			size += len(events[i].Payload)
			stored := eventhubs.Stored{Sequence: int64(i), Offset: "40", Enqueued: fuzzNow, Key: events[i].Key, Payload: events[i].Payload}
			encoded := appendEvent(nil, &stored, nil)
			annotations, after, err := amqp.NextSection(encoded)
			if err == nil && annotations.Code == amqp.SectionDeliveryAnnotations { // the producer's
				annotations, _, err = amqp.NextSection(after)
			}
			if err != nil || annotations.Code != amqp.SectionMessageAnnotations {
				t.Fatalf("event %d: begins with section %#x, %v", i, annotations.Code, err)
			}
			found := map[string]int{}
			annotations.Pairs(func(p amqp.RawPair) bool {
				if reserved(p.Key) {
					found[p.Key]++
				}
				return true
			})
			want := map[string]int{annSequence: 1, annOffset: 1, annEnqueued: 1}
			if events[i].Key != "" {
				want[annKey] = 1
			}
			if !reflect.DeepEqual(found, want) {
				t.Fatalf("event %d has the annotations %v, want %v", i, found, want)
			}
			var again splitter
			same, err := again.event(encoded)
			if err != nil || same.Key != events[i].Key || !bytes.Equal(same.Payload, events[i].Payload) {
				t.Fatalf("event %d, sent on as it was received, became %q %x, %v; it was %q %x", i, same.Key, same.Payload, err, events[i].Key, events[i].Payload)
			}
		}
		if size > len(payload)+16*len(events) {
			t.Fatalf("%d bytes became %d of %d events", len(payload), size, len(events))
		}
	})
}
