package sluiceotel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// SenderConfig holds what has a default. The zero value is ready to use.
type SenderConfig struct {
	// System is messaging.system. Default: eventhubs.
	System string
	// Attributes are added to all metrics.
	Attributes []attribute.KeyValue
	// Meter makes the metrics. Default: OpenTelemetry's global provider.
	Meter metric.MeterProvider
}

// Sender exports metrics of what is sent to one destination, as package sender's SinkConfig.OnSent
// reports it. It is safe for concurrent use.
type Sender struct {
	sent     metric.Int64Counter
	duration metric.Float64Histogram
	options  map[string]metric.MeasurementOption // by [errorType]; "": without an error
}

// NewSender makes a sender's metrics. Server is the host of the namespace, or of a broker;
// destination is the hub, the queue or the topic.
func NewSender(server, destination string, cfg *SenderConfig) (*Sender, error) {
	var c SenderConfig
	if cfg != nil {
		c = *cfg
	}
	if c.Meter == nil {
		c.Meter = otel.GetMeterProvider()
	}
	fixed := append([]attribute.KeyValue{
		systemKey.String(cmp.Or(c.System, EventHubs)), serverKey.String(server), attribute.String("messaging.destination.name", destination),
		operationKey.String("send"), attribute.String("messaging.operation.type", "send"),
	}, c.Attributes...)
	s := &Sender{options: map[string]metric.MeasurementOption{"": metric.WithAttributeSet(attribute.NewSet(fixed...))}}
	for _, typ := range errorTypes {
		s.options[typ] = metric.WithAttributeSet(attribute.NewSet(append(slices.Clone(fixed), errorKey.String(typ))...))
	}
	m := c.Meter.Meter(scope)
	var counted, timed error
	s.sent, counted = m.Int64Counter("messaging.client.sent.messages", metric.WithUnit("{message}"), metric.WithDescription("Messages that were sent, or that the service did not accept, by type of error."))
	s.duration, timed = m.Float64Histogram("messaging.client.operation.duration", metric.WithUnit("s"), metric.WithDescription("Sending of a batch."), boundaries)
	if err := errors.Join(counted, timed); err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	return s, nil
}

// Sent counts an attempt to send a batch. err is nil if the service accepted it.
func (s *Sender) Sent(messages int, took time.Duration, err error) {
	typ := ""
	if err != nil {
		typ = errorType(err)
	}
	s.sent.Add(context.Background(), int64(messages), s.options[typ])
	s.duration.Record(context.Background(), took.Seconds(), s.options[typ])
}
