package pipeline

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/blobstore"
	"github.com/sluice-go/sluice/internal/config/strictyaml"
	"github.com/sluice-go/sluice/pipeline/internal/jsonpick"
	"github.com/sluice-go/sluice/sender"
)

// messageTarget is a hub, a queue or topic of Service Bus, or a topic of Kafka, and
// how an event becomes a message for it.
type messageTarget struct {
	destination
	addressee address // of a hub or topic
	sink      sender.SinkConfig
	headers   bool     // the target has headers and empty keys: it is a topic of Kafka
	group     []column // the key or session, at most one; none: the event's own key
	session   bool     // group is the session
	bus       busProperties
	claim     *sender.ClaimCheck // of large bodies; nil: all bodies are sent
	bodies    *blobstore.Bodies  // its store
	body      []column
	whole     bool     // the body is the event's body unchanged
	mapping   *mapping // of group and body
}

// destination is a hub, a queue or topic of Service Bus, or a topic of Kafka.
type destination interface {
	// check checks that it exists.
	check(ctx context.Context) error
	transport() (transport, error)
	kind() string // as [Pipeline.Kind]
	address() address
}

// transport is a [sender.Transport] that can be closed.
type transport interface {
	sender.Transport
	Close(ctx context.Context) error
}

// maxKey is how many characters a partition key or session may have,
// https://learn.microsoft.com/azure/event-hubs/event-hubs-quotas.
const maxKey = 128

// messageTarget returns a target whose messages have the pipeline's stamps, and its keys.
func (r *reader) messageTarget(to destination, only *filter, limits *batchLimits) (*messageTarget, strictyaml.Keys) {
	t := &messageTarget{destination: to, sink: sender.SinkConfig{StampKey: r.stampKeys.current}}
	keys := t.keys(r.rollup, only)
	t.addSendKeys(keys, limits)
	return t, keys
}

// readEventHubTarget reads target.eventhub.
func (r *reader) readEventHubTarget(n strictyaml.Node, only *filter) *messageTarget {
	h := &hub{}
	t, keys := r.messageTarget(h, only, &h.batch)
	if r.readTargetHub(n, h, keys) {
		t.addressee = h.address()
	}
	return t
}

// readTargetHub reads a hub that messages are sent to, and more keys of the same mapping.
func (r *reader) readTargetHub(n strictyaml.Node, h *hub, keys strictyaml.Keys) bool {
	keys["hub"] = func(n strictyaml.Node) { n.Text(&h.name) }
	if !h.read(n, keys) {
		return false
	}
	if h.node == nil {
		h.namespace = r.shared.namespace
	}
	if h.node == nil { // the source has none either, which is reported there
		return false
	}
	// Check the connection string and the names now, as for a source.
	source, err := h.source("")
	if err != nil {
		return h.node.Fail("%w", err)
	}
	r.checkCircle(n, h.address(), source.Group().Topic)
	return true
}

// readKafkaTarget reads target.kafka.
func (r *reader) readKafkaTarget(n strictyaml.Node, only *filter) *messageTarget {
	topic := &topicTarget{}
	t, keys := r.messageTarget(topic, only, nil)
	t.headers = true
	if r.readTargetTopic(n, topic, keys) {
		t.addressee = topic.address()
	}
	return t
}

// readTargetTopic reads a topic of Kafka that messages are sent to, and more keys of the same
// mapping.
func (r *reader) readTargetTopic(n strictyaml.Node, topic *topicTarget, keys strictyaml.Keys) bool {
	keys["topic"] = func(n strictyaml.Node) { readTopicName(n, &topic.name) }
	if topic.cluster = r.readCluster(n, keys, "topic"); topic.cluster == nil {
		return false
	}
	r.checkCircle(n, topic.address(), topic.name)
	return true
}

// checkCircle refuses a target that is the source.
func (r *reader) checkCircle(n strictyaml.Node, to address, name string) {
	if r.source != nil && to.is(r.source.address()) {
		n.Fail("%s %s is the source of the pipeline: events would circulate for ever", to.system.Noun(), name)
	}
}

// keys returns the keys of all such targets. statistics are sent in place of events; nil: none.
func (t *messageTarget) keys(statistics *rollupConfig, only *filter) strictyaml.Keys {
	t.compile()
	if statistics != nil {
		return strictyaml.Keys{"key": statistics.readKey}
	}
	t.whole = true
	return strictyaml.Keys{
		"key":         func(n strictyaml.Node) { t.readGroup("key", n) },
		"only":        only.read,
		"claim_check": t.readClaimCheck,
		"body": func(n strictyaml.Node) {
			t.whole = false
			if t.body = readColumns(n); len(t.body) == 0 {
				n.Fail("has no fields: write them as NAME: {from: …, type: …}")
			}
			t.compile()
		},
	}
}

// readGroup reads where a message's key or session comes from.
func (t *messageTarget) readGroup(name string, n strictyaml.Node) {
	if from, ok := readOrigin(n); ok {
		t.group = []column{{name: name, node: n, origin: from, typ: typeText, required: true}}
		t.compile()
	}
}

func (t *messageTarget) compile() {
	t.mapping = newMapping("field", slices.Concat(t.group, t.bus.columns, t.body))
}

// transport returns a sender to the hub, which connects when it is first used.
func (h *hub) transport() (transport, error) {
	cfg := &sender.EventHubConfig{MaxMessages: h.batch.messages, MaxBytes: h.batch.bytes, Client: azeventhubs.ProducerClientOptions{ApplicationID: "sluice", TLSConfig: h.tls}}
	if h.websocket {
		cfg.Client.NewWebSocketConn = func(ctx context.Context, args azeventhubs.WebSocketConnParams) (net.Conn, error) {
			return h.dial(ctx, args.Host)
		}
	}
	if h.connection == "" {
		credential, err := azidentity.NewDefaultAzureCredential(nil)
		if err != nil {
			return nil, fmt.Errorf("default credential: %w", err)
		}
		return sender.OpenEventHubWithCredential(h.host, h.name, credential, cfg)
	}
	name := h.name
	if named, err := azeventhubs.ParseConnectionString(h.connection); err == nil && named.EntityPath != nil {
		name = "" // the SDK accepts it in one place only
	}
	return sender.OpenEventHub(h.connection, name, cfg)
}

// check implements [destination].
func (h *hub) check(ctx context.Context) error {
	source, err := h.source("")
	if err != nil {
		return err
	}
	_, err = source.Describe(ctx)
	return errors.Join(err, source.Close(ctx))
}

func (t *messageTarget) mappings() []*mapping { return []*mapping{t.mapping} }

// check checks the destination, and the container of large bodies.
func (t *messageTarget) check(ctx context.Context, _ catalog) error {
	err := t.destination.check(ctx)
	if t.bodies != nil {
		err = errors.Join(err, t.bodies.Check(ctx))
	}
	return err
}

// messages returns the message of an event, in its trace.
func (t *messageTarget) messages(ctx context.Context, e *sluice.Event) ([]*sender.Message, error) {
	m, err := t.message(e)
	if err != nil {
		return nil, err
	}
	continueTrace(ctx, e, m)
	return []*sender.Message{m}, nil
}

// message returns the message of an event.
func (t *messageTarget) message(e *sluice.Event) (*sender.Message, error) {
	m := &sender.Message{Key: e.Key, EmptyKey: t.headers && e.EmptyKey}
	row := make([]any, len(t.mapping.columns))
	if err := t.mapping.fill(row, make([]jsonpick.Value, t.mapping.paths), e); err != nil {
		return nil, err
	}
	for _, c := range t.group {
		group, _ := row[0].(string)
		if !t.headers && utf8.RuneCountInString(group) > maxKey {
			return nil, fmt.Errorf("%s: %s: has more than %d characters", c.name, c.origin, maxKey)
		}
		if m.Key, m.EmptyKey = group, t.headers && group == ""; t.session {
			m.Key, m.SessionID = "", group
		}
		row = row[1:]
	}
	if t.whole {
		m.CorrelationID = e.CorrelationID
	}
	t.bus.set(m, row)
	row = row[len(t.bus.columns):]
	if t.whole {
		m.Body, m.MessageID, m.ContentType = e.Body, e.MessageID, e.ContentType
		if t.headers && t.mapping.raw { // from Kafka to Kafka
			m.Headers = e.Headers
			return m, nil
		}
		m.Properties = maps.Clone(e.Properties)
		if t.headers && m.Body == nil { // in Kafka that would be a null value
			m.Body = []byte{}
		}
		return m, nil
	}
	m.ContentType = "application/json"
	var err error
	m.Body, err = appendObject(nil, t.body, row)
	return m, err
}

// appendObject appends a row as a JSON object.
func appendObject(b []byte, columns []column, row []any) ([]byte, error) {
	b = append(b, '{')
	for i, c := range columns {
		if i > 0 {
			b = append(b, ',')
		}
		name, err := json.Marshal(c.name)
		if err != nil {
			return nil, err
		}
		b = append(append(b, name...), ':')
		if b, err = c.typ.appendJSON(b, row[i]); err != nil {
			return nil, fmt.Errorf("field %s: %w", c.name, err)
		}
	}
	return append(b, '}'), nil
}

// appendJSON appends a converted value as JSON, numbers with all their digits.
func (t columnType) appendJSON(b []byte, v any) ([]byte, error) {
	switch v := v.(type) {
	case nil:
		return append(b, "null"...), nil
	case int64:
		return strconv.AppendInt(b, v, 10), nil
	case bool:
		return strconv.AppendBool(b, v), nil
	case time.Time:
		return append(v.AppendFormat(append(b, '"'), time.RFC3339Nano), '"'), nil
	case string:
		if t == typeNumeric || t == typeJSON {
			return append(b, v...), nil
		}
	}
	text, err := json.Marshal(v) // strings, doubles, and bytes as base64
	return append(b, text...), err
}

// open checks the hub and returns a sink, which parts closes.
func (t *messageTarget) open(ctx context.Context, parts *Parts, to telemetry) (*sender.Sink, error) {
	// Report a wrong hub at the start, as for a database.
	if err := t.check(ctx, nil); err != nil {
		return nil, err
	}
	out, err := t.transport()
	if err != nil {
		return nil, err
	}
	parts.onClose(out.Close)
	cfg := t.sink
	if cfg.OnSent, err = to.onSent(t.address()); err != nil {
		return nil, err
	}
	sink := sender.NewSink(out, &cfg)
	parts.onClose(sink.Close)
	return sink, nil
}

func (t *messageTarget) outlet(ctx context.Context, parts *Parts, to telemetry) (outlet, error) {
	sink, err := t.open(ctx, parts, to)
	if err != nil {
		return nil, err
	}
	messages := sender.Stamped(t.messages)
	if t.claim != nil {
		messages = t.claim.Messages(messages)
	}
	return &outletOf[*sender.Message]{
		records: messages, sink: sink, key: func(m *sender.Message) string { return cmp.Or(m.SessionID, m.Key) },
	}, nil
}
