package webhook

import (
	"context"
	"net/url"

	"github.com/sluice-go/sluice/driver"
)

// Message is an event that is to be posted. A [Sink] counts its attempts in it, so a message
// that is submitted again must be the same one, as sluice.AtLeastOnce does it, and must not be
// submitted before its last result.
type Message struct {
	Event *driver.Event
	Type  string // of the CloudEvent; empty: [Config].Type

	// TraceParent and TraceState are the trace context of the event (W3C). They become members of
	// the event in the body, and headers of a request with this event only. Default: none.
	TraceParent, TraceState string

	attempts int    // requests that it was a part of
	limit    int    // the most events in a request that it may be a part of; 0: no limit
	failed   bool   // a request with it failed in a way that one event can cause
	accepted uint64 // what the receiver had accepted then
	strikes  int    // how often it failed alone while the receiver accepted others
	done     bool   // the receiver has taken it, in a batch of [Sink.Handler] that failed
}

// Messages returns the message of an event, for sluice.AtLeastOnce.
func Messages(_ context.Context, e *driver.Event) ([]*Message, error) {
	return []*Message{{Event: e}}, nil
}

// origin is the partition that events come from, and the lease under which they are sent.
type origin struct {
	namespace, topic, group string
	incarnation             string // of the topic when the events were sent to it
	partition               string
	epoch                   int64
}

// originOf returns the origin of an event, from the context that the engine submits it with.
func originOf(ctx context.Context, e *driver.Event) origin {
	token := driver.FencingTokenOf(ctx)
	group := token.Lease.Group
	return origin{group.Namespace, group.Topic, group.Name, driver.IncarnationOf(ctx), e.Partition, token.Lease.Epoch}
}

// source returns the source of the events, a URI reference. Together with the sequence number
// it identifies an event for ever.
func (o *origin) source() string {
	return "//" + url.PathEscape(o.namespace) + "/" + url.PathEscape(o.topic) + "/" + url.PathEscape(o.incarnation) + "/" + url.PathEscape(o.partition)
}

// SourceOf returns the source that requests name for the events of a partition, of the topic's
// present incarnation. Receivers store it beside the sequence number.
func SourceOf(topic driver.Topic, partition string) string {
	of := origin{namespace: topic.Group.Namespace, topic: topic.Group.Topic, incarnation: topic.Incarnation, partition: partition}
	return of.source()
}
