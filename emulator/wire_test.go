package emulator_test

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"

	"github.com/sluice-go/sluice/emulator"
)

const fromZero = "h/ConsumerGroups/$Default/Partitions/0"

// session connects a plain AMQP client, for what the Event Hubs library doesn't do.
func session(t testing.TB, srv *emulator.Server) *amqp.Session {
	t.Helper()
	conn, err := amqp.Dial(testContext(t), "amqp://"+srv.Addr(), &amqp.ConnOptions{SASLType: amqp.SASLTypeAnonymous()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	s, err := conn.NewSession(testContext(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func sender(t testing.TB, s *amqp.Session, address string) *amqp.Sender {
	t.Helper()
	l, err := s.NewSender(testContext(t), address, nil)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func receiver(t testing.TB, s *amqp.Session, address string, opts *amqp.ReceiverOptions) *amqp.Receiver {
	t.Helper()
	l, err := s.NewReceiver(testContext(t), address, opts)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func next(t testing.TB, r *amqp.Receiver) *amqp.Message {
	t.Helper()
	m, err := r.Receive(testContext(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// condition is the AMQP error condition of an error, however it is wrapped.
func condition(err error) amqp.ErrCond {
	var link *amqp.LinkError
	if errors.As(err, &link) && link.RemoteErr != nil {
		return link.RemoteErr.Condition
	}
	var session *amqp.SessionError
	if errors.As(err, &session) && session.RemoteErr != nil {
		return session.RemoteErr.Condition
	}
	var conn *amqp.ConnError
	if errors.As(err, &conn) && conn.RemoteErr != nil {
		return conn.RemoteErr.Condition
	}
	var e *amqp.Error
	if errors.As(err, &e) {
		return e.Condition
	}
	return ""
}

// A consumer reads an event as it was sent. Only the header is dropped, and the broker's
// annotations are added. Azure keeps delivery annotations: the tests of its client for Python
// read them.
func TestEventIsKeptAsItIs(t *testing.T) {
	srv := start(t, one("h", 1), nil)
	s := session(t, srv)
	when := time.UnixMilli(1700000000123)
	text := "text"
	full := &amqp.Message{
		Header:              &amqp.MessageHeader{Durable: true, Priority: 9},
		DeliveryAnnotations: amqp.Annotations{"own": int64(1)},
		Annotations: amqp.Annotations{"own": "mine", int64(7): "by number", "x-opt-partition-key": "k",
			"x-opt-sequence-number": int64(99), "x-opt-offset": "99", "x-opt-enqueued-time": when, "x-opt-publisher": "p"},
		Properties: &amqp.MessageProperties{MessageID: uint64(5), To: &text, Subject: &text, CorrelationID: amqp.UUID{1}, ContentType: &text,
			AbsoluteExpiryTime: &when, GroupID: &text},
		ApplicationProperties: map[string]any{"i": int32(-5), "u": uint8(3), "f": 1.5, "s": "ö", "t": when, "b": []byte{1}},
		Data:                  [][]byte{[]byte("one"), []byte("two")},
		Footer:                amqp.Annotations{"foot": int64(1)},
	}
	messages := []*amqp.Message{
		full,
		{Value: map[string]any{"a": []any{int64(1), "x"}}},
		{Sequence: [][]any{{"hello", "world"}, {int64(1)}}},
		{Data: [][]byte{{}}},
		{Annotations: amqp.Annotations{"x-opt-partition-key": strings.Repeat("k", 128)}, Data: [][]byte{bytes.Repeat([]byte("big"), 200_000)}},
	}
	batch := &amqp.Message{Format: 0x80013700}
	for _, m := range messages {
		if err := sender(t, s, "h/Partitions/0").Send(testContext(t), m, nil); err != nil {
			t.Fatal(err)
		}
		b, err := m.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		batch.Data = append(batch.Data, b)
	}
	if err := sender(t, s, "h/Partitions/0").Send(testContext(t), batch, nil); err != nil {
		t.Fatal(err)
	}
	r := receiver(t, s, fromZero, nil)
	for i := range 2 * len(messages) {
		got, want := next(t, r), *messages[i%len(messages)]
		for key, check := range map[string]func(any) bool{
			"x-opt-sequence-number": func(v any) bool { return v == int64(i) },
			"x-opt-offset":          func(v any) bool { s, ok := v.(string); return ok && s != "" && s != "99" },
			"x-opt-enqueued-time":   func(v any) bool { at, ok := v.(time.Time); return ok && time.Since(at) < time.Minute },
		} {
			if v := got.Annotations[key]; !check(v) {
				t.Errorf("event %d: %s is %v", i, key, v)
			}
			delete(got.Annotations, key)
		}
		wantAnnotations := amqp.Annotations{}
		for k, v := range want.Annotations {
			switch k {
			case "x-opt-sequence-number", "x-opt-offset", "x-opt-enqueued-time", "x-opt-publisher":
			default:
				wantAnnotations[k] = v
			}
		}
		if !reflect.DeepEqual(got.Annotations, wantAnnotations) {
			t.Errorf("event %d: annotations %.200v, want %.200v", i, got.Annotations, wantAnnotations)
		}
		if got.Header != nil || !reflect.DeepEqual(got.DeliveryAnnotations, want.DeliveryAnnotations) || !reflect.DeepEqual(got.Properties, want.Properties) ||
			!reflect.DeepEqual(got.ApplicationProperties, want.ApplicationProperties) || !reflect.DeepEqual(got.Footer, want.Footer) {
			t.Errorf("event %d: %+v, want %+v", i, got, want)
		}
		if !reflect.DeepEqual(got.Data, want.Data) || !reflect.DeepEqual(got.Value, want.Value) || !reflect.DeepEqual(got.Sequence, want.Sequence) {
			t.Errorf("event %d: the body has changed: %.100v %v %v", i, got.Data, got.Value, got.Sequence)
		}
	}
}

// The key of a batch counts for its events, and decides the partition; an event's own key is kept.
func TestKeyOfABatch(t *testing.T) {
	srv := start(t, one("h", 4), nil)
	s := session(t, srv)
	event := func(body, key string) []byte {
		m := &amqp.Message{Data: [][]byte{[]byte(body)}}
		if key != "" {
			m.Annotations = amqp.Annotations{"x-opt-partition-key": key}
		}
		b, err := m.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	l := sender(t, s, "h")
	key := amqp.Annotations{"x-opt-partition-key": "k"}
	for _, m := range []*amqp.Message{
		{Format: 0x80013700, Annotations: key, Data: [][]byte{event("a", ""), event("b", "own")}},
		{Annotations: key, Data: [][]byte{[]byte("c")}},
	} {
		if err := l.Send(testContext(t), m, nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []string{"0", "1", "2", "3"} {
		if props, err := producer(t, srv, "h").GetPartitionProperties(testContext(t), id, nil); err != nil {
			t.Fatal(err)
		} else if props.IsEmpty {
			continue
		}
		r := receiver(t, s, "h/ConsumerGroups/$Default/Partitions/"+id, nil)
		for _, want := range []string{"a k", "b own", "c k"} {
			m := next(t, r)
			if got := fmt.Sprintf("%s %v", m.GetData(), m.Annotations["x-opt-partition-key"]); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		}
		return
	}
	t.Error("no events")
}

func TestRefusedMessages(t *testing.T) {
	srv := start(t, one("h", 1), nil)
	s := session(t, srv)
	l := sender(t, s, "h")
	if l.MaxMessageSize() != 1<<20 {
		t.Errorf("the maximum is %d", l.MaxMessageSize())
	}
	good, err := (&amqp.Message{Data: [][]byte{[]byte("x")}}).MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	for name, m := range map[string]*amqp.Message{
		"an empty batch":                 {Format: 0x80013700, Value: "x"},
		"a batch of garbage":             {Format: 0x80013700, Data: [][]byte{good, []byte("garbage")}},
		"a batch with an empty event":    {Format: 0x80013700, Data: [][]byte{good, {}}},
		"a batch with an event in knots": {Format: 0x80013700, Data: [][]byte{append(append([]byte{}, good...), 0x00, 0x53, 0x73, 0x45)}},
		"a long key":                     {Data: [][]byte{{1}}, Annotations: amqp.Annotations{"x-opt-partition-key": strings.Repeat("é", 129)}},
	} {
		err := l.Send(testContext(t), m, nil)
		if c := condition(err); c != amqp.ErrCondDecodeError && c != amqp.ErrCondInvalidField && c != "com.microsoft:argument-out-of-range" {
			t.Errorf("%s: %v", name, err)
		}
	}
	key := amqp.Annotations{"x-opt-partition-key": strings.Repeat("é", 128)}
	if err := l.Send(testContext(t), &amqp.Message{Data: [][]byte{[]byte("good")}, Annotations: key}, nil); err != nil {
		t.Errorf("after refused messages: %v", err)
	}
	if m := next(t, receiver(t, s, fromZero, nil)); string(m.GetData()) != "good" || m.Annotations["x-opt-sequence-number"] != int64(0) {
		t.Errorf("the first event is %v", m)
	}
}

// nested is a value that is nested that deep.
func nested(depth int) any {
	var v any = "x"
	for range depth {
		v = map[string]any{"a": v}
	}
	return v
}

// Azure's clients give a message up that is nested too deep. They repeat what was a decoding error
// until their time is up.
func TestNestedTooDeep(t *testing.T) {
	srv := start(t, one("h", 1), nil)
	bus := startBus(t, emulator.ServiceBusQueue{}, nil)
	for _, depth := range []int{50, 6000} {
		annotations := map[any]any{"x-deep": nested(depth)}
		p := producer(t, srv, "h")
		batch, err := p.NewEventDataBatch(testContext(t), to0())
		must(t, err)
		must(t, batch.AddAMQPAnnotatedMessage(&azeventhubs.AMQPAnnotatedMessage{MessageAnnotations: annotations}, nil))
		err = p.SendEventDataBatch(testContext(t), batch, nil)
		if condition(err) != amqp.ErrCondNotAllowed || !strings.Contains(err.Error(), "values nested deeper than 32") {
			t.Errorf("an event nested %d deep: %v", depth, err)
		}
		s := busSender(t, busClient(t, bus.ConnectionString()), "orders")
		err = s.SendAMQPAnnotatedMessage(testContext(t), &azservicebus.AMQPAnnotatedMessage{MessageAnnotations: annotations}, nil)
		if condition(err) != amqp.ErrCondNotAllowed || !strings.Contains(err.Error(), "values nested deeper than 32") {
			t.Errorf("a message nested %d deep: %v", depth, err)
		}
	}
}

func TestRefusedLinks(t *testing.T) {
	srv := start(t, one("h", 1), nil)
	for _, v := range []struct {
		address string
		reading bool
		want    amqp.ErrCond
	}{
		{"h/Publishers/device1", false, amqp.ErrCondNotImplemented},
		{"h/Publishers", false, amqp.ErrCondNotImplemented},
		{"h", true, amqp.ErrCondNotAllowed},
		{"h/Partitions/0", true, amqp.ErrCondNotAllowed},
		{fromZero, false, amqp.ErrCondNotAllowed},
		{"", false, amqp.ErrCondNotFound},
		{"h/x/y", false, amqp.ErrCondNotFound},
		{"h/ConsumerGroups//Partitions/0", true, amqp.ErrCondNotAllowed},
		{"$unknown", true, amqp.ErrCondNotAllowed},
		{"h/Partitions/00", false, "com.microsoft:argument-out-of-range"},
		{"h/Partitions/-1", false, "com.microsoft:argument-out-of-range"},
	} {
		s := session(t, srv)
		var err error
		if v.reading {
			_, err = s.NewReceiver(testContext(t), v.address, nil)
		} else {
			_, err = s.NewSender(testContext(t), v.address, nil)
		}
		if condition(err) != v.want {
			t.Errorf("%q, reading %v: %v, want %s", v.address, v.reading, err, v.want)
		}
		if err != nil && strings.Contains(err.Error(), srv.ConnectionString()) {
			t.Error("the error holds the connection string")
		}
	}
	for name, opts := range map[string]*amqp.ReceiverOptions{
		"epoch that isn't a number": {Properties: map[string]any{"com.microsoft:epoch": "5"}},
		"negative epoch":            {Properties: map[string]any{"com.microsoft:epoch": int64(-1)}},
		"endless name":              {Properties: map[string]any{"com.microsoft:receiver-name": strings.Repeat("x", 5000)}},
		"selector of another field": {Filters: []amqp.LinkFilter{amqp.NewSelectorFilter("amqp.annotation.x-opt-partition-key > '1'")}},
		"selector that isn't one":   {Filters: []amqp.LinkFilter{amqp.NewSelectorFilter("anything")}},
		"selector by another sign":  {Filters: []amqp.LinkFilter{amqp.NewSelectorFilter("amqp.annotation.x-opt-offset < '1'")}},
		"number that isn't one":     {Filters: []amqp.LinkFilter{amqp.NewSelectorFilter("amqp.annotation.x-opt-sequence-number > 'x'")}},
	} {
		if _, err := session(t, srv).NewReceiver(testContext(t), fromZero, opts); condition(err) != amqp.ErrCondInvalidField {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Epochs of other integer types, addresses with a scheme, and other cases will do.
	opts := &amqp.ReceiverOptions{Properties: map[string]any{"com.microsoft:epoch": uint32(7)}}
	if _, err := session(t, srv).NewReceiver(testContext(t), "amqps://localhost/H/consumergroups/$default/partitions/0", opts); err != nil {
		t.Error(err)
	}
}

// A receiver that asks for it learns with every event how far the partition reaches.
func TestReceiverMetrics(t *testing.T) {
	srv := start(t, one("h", 1), nil)
	send(t, producer(t, srv, "h"), to0(), numbered(0, 2)...)
	own := &amqp.Message{DeliveryAnnotations: amqp.Annotations{"own": "mine", "last_enqueued_offset": "forged"}, Data: [][]byte{[]byte("2")}}
	if err := sender(t, session(t, srv), "h/Partitions/0").Send(testContext(t), own, nil); err != nil {
		t.Fatal(err)
	}
	r := receiver(t, session(t, srv), fromZero, &amqp.ReceiverOptions{DesiredCapabilities: []string{"com.microsoft:enable-receiver-runtime-metric"}})
	last := ""
	for i := range 3 {
		m := next(t, r)
		at, _ := m.DeliveryAnnotations["last_enqueued_time_utc"].(time.Time)
		asked, _ := m.DeliveryAnnotations["runtime_info_retrieval_time_utc"].(time.Time)
		last, _ = m.DeliveryAnnotations["last_enqueued_offset"].(string)
		if m.DeliveryAnnotations["last_enqueued_sequence_number"] != int64(2) || last == "" || at.IsZero() || asked.Before(at) {
			t.Errorf("event %d: delivery annotations %v", i, m.DeliveryAnnotations)
		}
		if i == 2 && m.DeliveryAnnotations["own"] != "mine" {
			t.Errorf("the producer's delivery annotations are lost: %v", m.DeliveryAnnotations)
		}
		if i == 2 && m.Annotations["x-opt-offset"] != last {
			t.Errorf("the last offset is %s, the last event's %v", last, m.Annotations["x-opt-offset"])
		}
	}
}

// rpc is a pair of links for requests and replies.
type rpc struct {
	t testing.TB
	s *amqp.Sender
	r *amqp.Receiver
	n int
}

func newRPC(t testing.TB, s *amqp.Session, node string) *rpc {
	return &rpc{t: t, r: receiver(t, s, node, &amqp.ReceiverOptions{TargetAddress: "replies", Name: node + " replies"}), s: sender(t, s, node)}
}

func (c *rpc) call(replyTo string, props map[string]any, body any) (status int32, description string, value any) {
	c.t.Helper()
	c.n++
	id := fmt.Sprint("request ", c.n)
	m := &amqp.Message{Properties: &amqp.MessageProperties{MessageID: id, ReplyTo: &replyTo}, ApplicationProperties: props, Value: body}
	if err := c.s.Send(testContext(c.t), m, nil); err != nil {
		c.t.Fatal(err)
	}
	got := next(c.t, c.r)
	if got.Properties.CorrelationID != id {
		c.t.Errorf("correlation id %v, want %s", got.Properties.CorrelationID, id)
	}
	status, _ = got.ApplicationProperties["status-code"].(int32)
	description, _ = got.ApplicationProperties["status-description"].(string)
	return status, description, got.Value
}

// A client that closes its link for replies may not know so yet where it sends requests. They
// are accepted, without an answer; a link that never was is named as the fault that it is.
func TestRepliesToAClosedLink(t *testing.T) {
	c := newRPC(t, session(t, start(t, one("h", 1), nil)), "$management")
	if err := c.r.Close(testContext(t)); err != nil {
		t.Fatal(err)
	}
	read := map[string]any{"operation": "READ", "type": "com.microsoft:eventhub", "name": "h"}
	for to, refused := range map[string]bool{"replies": false, "elsewhere": true} {
		err := c.s.Send(testContext(t), &amqp.Message{Properties: &amqp.MessageProperties{MessageID: "id", ReplyTo: &to}, ApplicationProperties: read}, nil)
		if (err != nil) != refused {
			t.Errorf("a request with replies to %q: %v", to, err)
		}
	}
}

func TestManagement(t *testing.T) {
	srv := start(t, one("Hub", 2), nil)
	for _, node := range []string{"$management", "hub/$management"} {
		c := newRPC(t, session(t, srv), node)
		for _, v := range []struct {
			replyTo string
			props   map[string]any
			status  int32
		}{
			{"replies", map[string]any{"operation": "READ", "type": "com.microsoft:eventhub", "name": "HUB"}, 200},
			{"$management replies", map[string]any{"operation": "READ", "type": "com.microsoft:eventhub", "name": "hub"}, 200},
			{"", map[string]any{"operation": "READ", "type": "com.microsoft:partition", "name": "hub", "partition": "1"}, 200},
			{"replies", map[string]any{"operation": "READ", "type": "com.microsoft:partition", "name": "hub", "partition": "2"}, 404},
			{"replies", map[string]any{"operation": "READ", "type": "com.microsoft:partition", "name": "hub", "partition": int64(1)}, 404},
			{"replies", map[string]any{"operation": "READ", "type": "com.microsoft:eventhub", "name": "none"}, 404},
			{"replies", map[string]any{"operation": "READ", "type": "com.microsoft:queue", "name": "hub"}, 400},
			{"replies", map[string]any{"operation": "DELETE", "type": "com.microsoft:eventhub", "name": "hub"}, 400},
			{"replies", nil, 400},
		} {
			status, description, value := c.call(v.replyTo, v.props, nil)
			if status != v.status || description == "" {
				t.Errorf("%s %v: %d %s", node, v.props, status, description)
			}
			m, _ := value.(map[string]any)
			if status != 200 {
				if value != nil {
					t.Errorf("%v: value %v", v.props, value)
				}
				continue
			}
			if m["name"] != "Hub" || m["type"] != v.props["type"] {
				t.Errorf("%v: %v", v.props, m)
			}
			switch v.props["type"] {
			case "com.microsoft:eventhub":
				_, dated := m["created_at"].(time.Time)
				if !dated || !reflect.DeepEqual(m["partition_ids"], []string{"0", "1"}) || m["partition_count"] != int32(2) || m["georeplication_factor"] != int32(1) {
					t.Errorf("hub %v", m)
				}
			default:
				if m["partition"] != "1" || m["begin_sequence_number"] != int64(0) || m["last_enqueued_sequence_number"] != int64(-1) ||
					m["last_enqueued_offset"] != "-1" || m["is_partition_empty"] != true {
					t.Errorf("partition %v", m)
				}
			}
		}
	}
}

func TestRefusedRequests(t *testing.T) {
	srv := start(t, one("h", 1), nil)
	s := session(t, srv)
	l := sender(t, s, "$management")
	if err := l.Send(testContext(t), &amqp.Message{Value: "x"}, nil); condition(err) != amqp.ErrCondNotFound {
		t.Errorf("a request without a link for the reply: %v", err)
	}
	receiver(t, s, "$management", nil)
	if err := l.Send(testContext(t), &amqp.Message{Value: make([]byte, 100_000)}, nil); condition(err) != amqp.ErrCondMessageSizeExceeded {
		t.Errorf("a request of 100 KB: %v", err)
	}
	c := newRPC(t, session(t, srv), "$cbs")
	if status, _, _ := c.call("replies", map[string]any{"operation": "delete-token"}, "x"); status != 400 {
		t.Errorf("an unknown operation: %d", status)
	}
	if status, _, _ := c.call("replies", map[string]any{"operation": "put-token"}, int64(1)); status != 400 {
		t.Errorf("a token that is a number: %d", status)
	}
	if status, _, _ := c.call("replies", map[string]any{"operation": "put-token", "name": "sb://x"}, "any"); status != 202 {
		t.Errorf("any token, without keys: %d", status)
	}
}

func TestOneCBSLink(t *testing.T) {
	srv := start(t, one("h", 1), nil)
	conn, err := amqp.Dial(testContext(t), "amqp://"+srv.Addr(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for range 2 { // once the first pair is closed, there can be another
		first, err := conn.NewSession(testContext(t), nil)
		if err != nil {
			t.Fatal(err)
		}
		newRPC(t, first, "$cbs")
		second, err := conn.NewSession(testContext(t), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := second.NewSender(testContext(t), "$cbs", nil); condition(err) != amqp.ErrCondNotAllowed {
			t.Errorf("a second sender: %v", err)
		}
		if _, err := second.NewReceiver(testContext(t), "$cbs", nil); condition(err) != amqp.ErrCondNotAllowed {
			t.Errorf("a second receiver: %v", err)
		}
		if err := first.Close(testContext(t)); err != nil {
			t.Fatal(err)
		}
	}
}

// A deleted hub's links are detached, those that wait and those that send.
func TestLinksOfADeletedHub(t *testing.T) {
	srv := start(t, one("h", 1), nil)
	s := session(t, srv)
	l, r := sender(t, s, "h"), receiver(t, s, fromZero, nil)
	if err := srv.Recreate("h"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Receive(testContext(t), nil); condition(err) != amqp.ErrCondNotFound {
		t.Errorf("the receiver got %v", err)
	}
	if err := l.Send(testContext(t), &amqp.Message{Data: [][]byte{{1}}}, nil); condition(err) != amqp.ErrCondNotFound {
		t.Errorf("the sender got %v", err)
	}
	// In another session: the client library may give a link's handle to the next one
	// before it has answered the detach, when the sender has heard of its message's
	// end, but not yet of its own.
	if err := sender(t, session(t, srv), "h").Send(testContext(t), &amqp.Message{Data: [][]byte{{1}}}, nil); err != nil {
		t.Errorf("a new sender: %v", err)
	}
}

// Frames of the least size, with events that need many.
func TestSmallFrames(t *testing.T) {
	srv := start(t, one("h", 1), nil)
	conn, err := amqp.Dial(testContext(t), "amqp://"+srv.Addr(), &amqp.ConnOptions{MaxFrameSize: 513})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	s, err := conn.NewSession(testContext(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	l := sender(t, s, "h")
	r := receiver(t, s, fromZero, nil)
	for _, size := range []int{0, 1, 350, 351, 352, 353, 354, 355, 356, 448, 449, 1000, 1_000_000} {
		body := bytes.Repeat([]byte{byte(size)}, size)
		if err := l.Send(testContext(t), &amqp.Message{Data: [][]byte{body}}, nil); err != nil {
			t.Fatal(err)
		}
		if m := next(t, r); !bytes.Equal(m.GetData(), body) {
			t.Errorf("an event of %d bytes came back with %d", size, len(m.GetData()))
		}
	}
}

// Batches of the smallest events there are take more room in the log than on the wire:
// several that arrive at once don't become one append that the log refuses.
func TestTinyEvents(t *testing.T) {
	srv := start(t, one("h", 1), nil)
	l := sender(t, session(t, srv), "h/Partitions/0")
	tiny := []byte{0x00, 0x53, 0x77, 0x40} // no more than a body, null
	batch := &amqp.Message{Format: 0x80013700}
	for range 100_000 {
		batch.Data = append(batch.Data, tiny)
	}
	var sends sync.WaitGroup
	for range 20 {
		sends.Go(func() {
			if err := l.Send(testContext(t), batch, nil); err != nil {
				t.Error(err)
			}
		})
	}
	sends.Wait()
}
