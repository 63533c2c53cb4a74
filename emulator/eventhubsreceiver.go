package emulator

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sluice-go/sluice/emulator/internal/eventhubs"
	"github.com/sluice-go/sluice/internal/amqp"
)

const (
	// readEvents and readBytes limit one read from the log.
	readEvents = 1000
	readBytes  = 512 << 10

	selectorName       = "apache.org:selector-filter:string"
	propEpoch          = "com.microsoft:epoch"
	propName           = "com.microsoft:receiver-name"
	maxReceiverName    = 256   // unless [EventHubsAsAzure] says otherwise
	noName             = "nil" // stands for a receiver without a name in Azure's texts
	annotationSelector = "amqp.annotation."

	// capMetrics is the capability by which a receiver asks for the partition's last
	// event along with every event.
	capMetrics amqp.Symbol = "com.microsoft:enable-receiver-runtime-metric"
)

// hubReceiver is a link on which a client receives the events of a partition.
type hubReceiver struct {
	c    *hubPeer
	link *amqp.Outgoing
	node hubNode
	part *eventhubs.Partition
	next int64
	buf  []eventhubs.Stored

	withMetrics bool
	metrics     []byte // encoded pairs of the delivery annotations
}

func (c *hubPeer) openReceiver(l *amqp.Outgoing, n hubNode) (func(context.Context) error, error) {
	if err := c.injectAttach(l.Link, n.node); err != nil {
		return nil, err
	}
	_, p, err := c.lookup(n)
	if err != nil {
		return nil, err
	}
	epoch, name, err := readerOf(l.Properties(), c.azure.ReceiverName)
	if err != nil {
		return nil, err
	}
	start, err := startOf(l.Filter())
	if err != nil {
		return nil, err
	}
	next, err := c.seek(n, p, start)
	if err != nil {
		return c.azure.refuse(err)
	}
	detach, err := p.Attach(n.group, name, epoch, func(by string, newEpoch int64) {
		l.Detach(amqp.Errorf(amqp.CondStolen, "New receiver '%s' with higher epoch of '%d' is created hence current receiver '%s' with epoch '%s' is "+
			"getting disconnected. If you are recreating the receiver, make sure a higher epoch is used.",
			nameOrNil(by), newEpoch, nameOrNil(name), epochText(epoch)))
	})
	if epochErr := new(eventhubs.EpochError); errors.As(err, &epochErr) {
		return c.azure.refuse(c.explainAttach(n, name, err))
	}
	if err != nil {
		return nil, c.explainAttach(n, name, err)
	}
	r := &hubReceiver{c: c, link: l, node: n, part: p, next: next, withMetrics: l.Desired(capMetrics)}
	return func(ctx context.Context) error {
		defer detach()
		return c.explain(n, r.run(ctx))
	}, nil
}

// seek returns the sequence number at which a receiver begins.
func (c *hubPeer) seek(n hubNode, p *eventhubs.Partition, start eventhubs.StartPosition) (int64, error) {
	if c.azure.geo != nil {
		var err error
		if start, err = c.azure.geo.resolve(p, start); err != nil {
			return 0, err
		}
	}
	next, err := p.Seek(start)
	if err != nil {
		return 0, c.explainStart(n, p, err)
	}
	return c.azure.beginning(p, start, next), nil
}

func (r *hubReceiver) run(ctx context.Context) error {
	for {
		credit, err := r.link.WaitCredit(ctx)
		if err != nil {
			return err
		}
		r.buf, err = r.part.Read(r.next, min(credit, readEvents), readBytes, r.buf[:0])
		if err != nil {
			return err
		}
		if len(r.buf) == 0 {
			r.link.Idle()
			if err := r.part.Wait(ctx, r.next); err != nil {
				return err
			}
			continue
		}
		if _, err := r.c.inject(ctx, r.link.Link, OnReceive, r.node.entity, r.node.partition); err != nil {
			return err
		}
		geo := r.c.azure.geo
		if geo != nil {
			geo.rename(r.part, r.buf)
		}
		if r.withMetrics {
			info := r.part.Info()
			if geo != nil {
				info.LastOffset = geo.lastOffset(r.part, info)
			}
			r.metrics = appendMetrics(r.metrics[:0], info, time.Now())
		}
		for events := r.buf; len(events) > 0; {
			n, err := r.link.Send(len(events), 0, func(b []byte, i int) []byte { return appendEvent(b, &events[i], r.metrics) })
			if err != nil {
				return err
			}
			if n > 0 {
				r.next = events[n-1].Sequence + 1
				events = events[n:]
			}
			if len(events) > 0 {
				if _, err := r.link.WaitCredit(ctx); err != nil {
					return err
				}
			}
		}
		clear(r.buf)
	}
}

// startOf parses the start position in a receiver's selector filter, such as
//
//	amqp.annotation.x-opt-offset > '@latest'
//
// Without a filter, it is the oldest event.
func startOf(filter amqp.Map) (eventhubs.StartPosition, error) {
	d, ok := filter.Get(selectorName).(amqp.Described)
	if !ok {
		return eventhubs.StartPosition{Kind: eventhubs.Earliest}, nil
	}
	text, _ := d.Value.(string)
	bad := func() (eventhubs.StartPosition, error) {
		return eventhubs.StartPosition{}, amqp.Errorf(amqp.CondInvalidField, "The selector '%.200s' isn't supported: it must compare amqp.annotation.%s, "+
			"amqp.annotation.%s or amqp.annotation.%s by > or >= with a value in single quotes.", text, annOffset, annSequence, annEnqueued)
	}
	field, value, ok := strings.Cut(text, ">")
	if !ok {
		return bad()
	}
	field, ok = strings.CutPrefix(strings.TrimSpace(field), annotationSelector)
	if !ok {
		return bad()
	}
	var start eventhubs.StartPosition
	if value, ok = strings.CutPrefix(value, "="); ok {
		start.Inclusive = true
	}
	value = strings.TrimSpace(value)
	if n := len(value); n >= 2 && value[0] == '\'' && value[n-1] == '\'' {
		value = value[1 : n-1]
	}
	if value == "" || strings.ContainsAny(value, "' ") {
		return bad()
	}
	number, err := strconv.ParseInt(value, 10, 64)
	switch field {
	case annOffset:
		start.Kind, start.Offset = eventhubs.AtOffset, value
		return start, nil
	case annSequence:
		start.Kind, start.Sequence = eventhubs.AtSequence, number
	case annEnqueued, "x-opt-enqueuedtimeutc":
		start.Kind, start.Time = eventhubs.AtTime, time.UnixMilli(number)
	default:
		return bad()
	}
	if err != nil {
		return bad()
	}
	return start, nil
}

// readerOf returns epoch and name in the properties of a receiver's link. maxName is how long
// the name may be, 0 for the default.
func readerOf(props amqp.Map, maxName int) (epoch *int64, name string, err error) {
	if v := props.Get(propEpoch); v != nil {
		e, ok := integer(v)
		if !ok || e < 0 {
			return nil, "", amqp.Errorf(amqp.CondInvalidField, "the link property %s must be an integer of at least 0", propEpoch)
		}
		epoch = &e
	}
	if maxName == 0 {
		maxName = maxReceiverName
	}
	if name = props.String(propName); len(name) > maxName && utf8.RuneCountInString(name) > maxName {
		return nil, "", amqp.Errorf(amqp.CondInvalidField, "the link property %s may have at most %d characters", propName, maxName)
	}
	return epoch, name, nil
}

func integer(v any) (int64, bool) {
	switch v := v.(type) {
	case int64:
		return v, true
	case int32:
		return int64(v), true
	case int16:
		return int64(v), true
	case int8:
		return int64(v), true
	case uint64:
		return int64(v), v <= 1<<63-1
	case uint32:
		return int64(v), true
	case uint16:
		return int64(v), true
	case uint8:
		return int64(v), true
	}
	return 0, false
}

func nameOrNil(name string) string {
	if name == "" {
		return noName
	}
	return name
}

func epochText(epoch *int64) string {
	if epoch == nil {
		return noName
	}
	return strconv.FormatInt(*epoch, 10)
}

// explainAttach converts the error about a reader to Azure's text.
func (c *hubPeer) explainAttach(n hubNode, name string, err error) error {
	var epoch *eventhubs.EpochError
	var limit *eventhubs.ReaderLimitError
	switch {
	case errors.As(err, &epoch) && epoch.Epoch == nil:
		return amqp.Errorf(amqp.CondStolen, "At least one receiver for the endpoint is created with epoch of '%d', and so non-epoch receiver is not "+
			"allowed. Either reconnect with a higher epoch, or make sure all epoch receivers are closed or disconnected.", epoch.Held)
	case errors.As(err, &epoch):
		return amqp.Errorf(amqp.CondStolen, "Receiver '%s' with a higher epoch '%d' already exists. Receiver '%s' with epoch %d cannot be created. "+
			"Make sure you are creating receiver with increasing epoch value to ensure connectivity, or ensure all old epoch receivers are closed or "+
			"disconnected.", nameOrNil(epoch.Holder), epoch.Held, nameOrNil(name), *epoch.Epoch)
	case errors.As(err, &limit):
		holders := make([]string, len(limit.Holders))
		for i, h := range limit.Holders {
			holders[i] = nameOrNil(h)
		}
		return amqp.Errorf(amqp.CondResourceLimit, "Exceeded the maximum number of allowed receivers per partition in a consumer group which is %d. "+
			"List of connected receivers - %s.", limit.Limit, strings.Join(holders, ", "))
	}
	return c.explain(n, err)
}

// explainStart converts the error about a start position to Azure's text.
func (c *hubPeer) explainStart(n hubNode, p *eventhubs.Partition, err error) error {
	var refused *eventhubs.StartError
	if !errors.As(err, &refused) {
		return c.explain(n, err)
	}
	info := p.Info()
	what, last, value := "offset", info.LastOffset, refused.Start.Offset
	if refused.Start.Kind == eventhubs.AtSequence {
		what, last, value = "sequence number", fmt.Sprint(info.Last), fmt.Sprint(refused.Start.Sequence)
	}
	return amqp.Errorf(amqp.CondArgument, "The supplied %s '%.100s' is invalid. The last %s in the system is '%s'", what, value, what, last)
}
