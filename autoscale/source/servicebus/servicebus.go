// Package servicebus counts the messages that wait in a queue or subscription of
// Azure Service Bus.
package servicebus

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/autoscale/internal/azerror"
)

// Config says what is counted, and how it is reached.
type Config struct {
	// Connection is the namespace's connection string, with a key that has the
	// right to manage; or else Namespace is its host name, with a Credential.
	Connection string
	Namespace  string
	Credential azcore.TokenCredential
	// Queue is the queue; or else Topic and Subscription are.
	Queue               string
	Topic, Subscription string
	// Client sends the requests. Default: the SDK's own.
	Client *http.Client
}

// Source is the number of active messages: those that wait to be received.
// Dead letters and scheduled messages are not among them.
type Source struct {
	cfg    Config
	client *admin.Client
}

var _ autoscale.Source = (*Source)(nil)

// New returns the backlog of a queue or subscription. The namespace is first
// asked when the source is read.
func New(cfg *Config) (*Source, error) {
	s := &Source{cfg: *cfg}
	switch subscription := cfg.Topic != "" && cfg.Subscription != ""; {
	case (cfg.Queue != "") == subscription, (cfg.Topic != "") != (cfg.Subscription != ""):
		return nil, errors.New("service bus: name a queue, or a topic and its subscription")
	case (cfg.Connection != "") == (cfg.Namespace != ""), (cfg.Namespace != "") != (cfg.Credential != nil):
		return nil, errors.New("service bus: needs a connection string, or a namespace and a credential")
	}
	var opts admin.ClientOptions
	if cfg.Client != nil {
		opts.Transport = cfg.Client
	}
	var err error
	if cfg.Connection != "" {
		s.client, err = admin.NewClientFromConnectionString(cfg.Connection, &opts)
		if err != nil { // which may quote the connection string, and so the key
			return nil, errors.New("service bus: not a connection string: it looks like Endpoint=sb://HOST/;SharedAccessKeyName=…;SharedAccessKey=…")
		}
	} else if s.client, err = admin.NewClient(cfg.Namespace, cfg.Credential, &opts); err != nil {
		return nil, fmt.Errorf("service bus: %w", err)
	}
	return s, nil
}

// Metric is the name that the metric has by default: {topic}-{subscription}-backlog,
// or {queue}-backlog.
func (s *Source) Metric() string {
	if s.cfg.Queue != "" {
		return s.cfg.Queue + "-backlog"
	}
	return s.cfg.Topic + "-" + s.cfg.Subscription + "-backlog"
}

// Read implements [autoscale.Source]. What is switched off, or does not hand
// out messages, is Disabled: what waits there is no work for anybody.
func (s *Source) Read(ctx context.Context) (autoscale.Reading, error) {
	read, what := s.subscription, "subscription "+s.cfg.Subscription+" of topic "+s.cfg.Topic
	if s.cfg.Queue != "" {
		read, what = s.queue, "queue "+s.cfg.Queue
	}
	r, err := read(ctx)
	if err != nil {
		return r, fmt.Errorf("service bus: %s: %w", what, azerror.Shorten(err))
	}
	return r, nil
}

var errMissing = errors.New("there is none in this namespace")

func (s *Source) queue(ctx context.Context) (autoscale.Reading, error) {
	q, err := s.client.GetQueue(ctx, s.cfg.Queue, nil)
	switch {
	case err != nil:
		return autoscale.Reading{}, err
	case q == nil:
		return autoscale.Reading{}, errMissing
	case disabled(q.Status):
		return autoscale.Reading{State: autoscale.Disabled}, nil
	}
	n, err := s.client.GetQueueRuntimeProperties(ctx, s.cfg.Queue, nil)
	if err != nil {
		return autoscale.Reading{}, err
	}
	if n == nil { // removed in between
		return autoscale.Reading{}, errMissing
	}
	return autoscale.Reading{Value: float64(n.ActiveMessageCount)}, nil
}

func (s *Source) subscription(ctx context.Context) (autoscale.Reading, error) {
	q, err := s.client.GetSubscription(ctx, s.cfg.Topic, s.cfg.Subscription, nil)
	switch {
	case err != nil:
		return autoscale.Reading{}, err
	case q == nil:
		return autoscale.Reading{}, errMissing
	case disabled(q.Status):
		return autoscale.Reading{State: autoscale.Disabled}, nil
	}
	n, err := s.client.GetSubscriptionRuntimeProperties(ctx, s.cfg.Topic, s.cfg.Subscription, nil)
	if err != nil {
		return autoscale.Reading{}, err
	}
	if n == nil {
		return autoscale.Reading{}, errMissing
	}
	return autoscale.Reading{Value: float64(n.ActiveMessageCount)}, nil
}

// disabled tells whether nothing can be received.
func disabled(s *admin.EntityStatus) bool {
	return s != nil && (*s == admin.EntityStatusDisabled || *s == admin.EntityStatusReceiveDisabled)
}
