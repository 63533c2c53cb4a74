package sender_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/sender"
)

// shelf is a [sender.BodyStore] in memory that fails some times first.
type shelf struct {
	mu     sync.Mutex
	fail   int
	bodies map[string]string
}

func (s *shelf) Put(_ context.Context, body []byte) ([]byte, map[string]any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail > 0 {
		s.fail--
		return nil, nil, errors.New("the shelf is locked")
	}
	if s.bodies == nil {
		s.bodies = map[string]string{}
	}
	name := fmt.Sprint("body-", len(s.bodies))
	s.bodies[name] = string(body)
	return []byte(name), map[string]any{"on-shelf": true}, nil
}

// Large bodies are stored, and their messages refer to them. The messages of the sequence stay as
// they are.
func TestClaimCheck(t *testing.T) {
	srv := startBus(t, nil)
	bus := openBus(t, srv.ConnectionString(), queue, nil)
	s := &shelf{fail: 2}
	properties := map[string]any{"a": "b"}
	large := strings.Repeat("x", 300<<10) // more than the queue takes
	in := []sender.Message{
		{MessageID: "0", Body: []byte("small")}, {MessageID: "1", Body: []byte(large), Properties: properties},
		{MessageID: "2", Body: []byte(large)}, {MessageID: "3", Body: []byte(large[:192<<10])},
	}
	report, err := sender.New(bus, &sender.Config{ClaimCheck: &sender.ClaimCheck{Store: s}, RetryMin: time.Millisecond}).SendAll(t.Context(), slices.Values(in))
	if err != nil || report.Messages != 4 || len(s.bodies) != 2 || s.bodies["body-0"] != large {
		t.Fatalf("%d stored, %+v, %v", len(s.bodies), report, err)
	}
	for _, m := range received(t, srv.ConnectionString(), queue, 4) {
		want, has := string(in[m.MessageID[0]-'0'].Body), map[string]any(nil)
		switch m.MessageID {
		case "1":
			want, has = "body-0", map[string]any{"a": "b", "on-shelf": true}
		case "2":
			want, has = "body-1", map[string]any{"on-shelf": true}
		}
		if string(m.Body) != want || !maps.Equal(m.ApplicationProperties, has) {
			t.Errorf("message %s has %d bytes and %v", m.MessageID, len(m.Body), m.ApplicationProperties)
		}
	}
	if len(properties) != 1 || len(in[1].Body) != len(large) {
		t.Error("the caller's message was changed")
	}
}

// A body that can't be stored ends the sending, and its message is not sent.
func TestClaimCheckFails(t *testing.T) {
	srv := startBus(t, nil)
	bus := openBus(t, srv.ConnectionString(), queue, nil)
	cfg := &sender.Config{ClaimCheck: &sender.ClaimCheck{Store: &shelf{fail: 3}, Over: 4}, Attempts: 3, RetryMin: time.Millisecond}
	in := []sender.Message{{Body: []byte("tiny")}, {Body: []byte("large")}, {Body: []byte("more")}}
	report, err := sender.New(bus, cfg).SendAll(t.Context(), slices.Values(in))
	if err == nil || !strings.Contains(err.Error(), "claim check: the shelf is locked") || report.Taken != 2 || !slices.Contains(report.Unsent, sender.IndexRange{First: 1, Last: 1}) && !slices.Contains(report.Unsent, sender.IndexRange{First: 0, Last: 1}) {
		t.Errorf("%+v, %v", report, err)
	}
}

// The messages of a mapping refer to large bodies too. A body that can't be stored is an outage.
func TestClaimCheckOfMapping(t *testing.T) {
	s := &shelf{fail: 1}
	check := &sender.ClaimCheck{Store: s, Over: 4}
	mapping := check.Messages(func(_ context.Context, e *sluice.Event) ([]*sender.Message, error) {
		if e.Body == nil {
			return nil, driver.Reject(errors.New("empty"))
		}
		return []*sender.Message{{Body: e.Body}, {Body: []byte("tiny"), Properties: e.Properties}}, nil
	})
	event := &sluice.Event{Body: []byte("large"), Properties: map[string]any{"a": "b"}}
	if _, err := mapping(t.Context(), event); !errors.Is(err, sluice.ErrOutage) {
		t.Errorf("while the shelf is locked: %v", err)
	}
	list, err := mapping(t.Context(), event)
	if err != nil || len(list) != 2 || string(list[0].Body) != "body-0" || list[0].Properties["on-shelf"] != true || string(list[1].Body) != "tiny" || len(list[1].Properties) != 1 || s.bodies["body-0"] != "large" {
		t.Errorf("%v, %v", list, err)
	}
	if _, err := mapping(t.Context(), &sluice.Event{}); !errors.Is(err, sluice.ErrRejected) || errors.Is(err, sluice.ErrOutage) {
		t.Errorf("of a mapping's own error: %v", err)
	}
}
