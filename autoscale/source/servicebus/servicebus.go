// Package servicebus counts the active messages of a queue or subscription of Azure
// Service Bus.
package servicebus

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/autoscale/internal/azclient"
	"github.com/sluice-go/sluice/autoscale/internal/azerror"
)

// Config names the queue or subscription, and how to connect.
type Config struct {
	// Connection is the namespace's connection string, with a key that has the
	// Manage claim. Or Namespace is its host name, with a Credential.
	Connection string
	Namespace  string
	Credential azcore.TokenCredential
	// Queue is the queue's name. Or Topic and Subscription are those of a subscription.
	Queue               string
	Topic, Subscription string
	// Client sends the requests. Default: the SDK's own.
	Client *http.Client
}

// Source reads the number of active messages: those that can be received. Dead
// letters and scheduled messages do not count.
type Source struct {
	cfg    Config
	client *admin.Client
}

var _ autoscale.Source = (*Source)(nil)

// New returns the backlog of a queue or subscription as a source. It does not
// connect before the first Read.
func New(cfg *Config) (*Source, error) {
	s := &Source{cfg: *cfg}
	switch subscription := cfg.Topic != "" && cfg.Subscription != ""; {
	case (cfg.Queue != "") == subscription, (cfg.Topic != "") != (cfg.Subscription != ""):
		return nil, errors.New("service bus: name either a queue, or a topic and its subscription")
	case (cfg.Connection != "") == (cfg.Namespace != ""), (cfg.Namespace != "") != (cfg.Credential != nil):
		return nil, errors.New("service bus: give either a connection string, or a namespace and a credential")
	}
	var opts admin.ClientOptions
	if cfg.Client != nil {
		opts.Transport = cfg.Client
	}
	opts.ClientOptions = azclient.Bounded(opts.ClientOptions)
	var err error
	if cfg.Connection != "" {
		s.client, err = admin.NewClientFromConnectionString(cfg.Connection, &opts)
		if err != nil { // do not wrap it: it may quote the connection string with the key
			return nil, errors.New("service bus: the connection string is not valid: it looks like Endpoint=sb://HOST/;SharedAccessKeyName=…;SharedAccessKey=…")
		}
	} else if s.client, err = admin.NewClient(cfg.Namespace, cfg.Credential, &opts); err != nil {
		return nil, fmt.Errorf("service bus: %w", err)
	}
	return s, nil
}

// Metric returns the default name of the metric: {topic}-{subscription}-backlog, or
// {queue}-backlog.
func (s *Source) Metric() string {
	if s.cfg.Queue != "" {
		return s.cfg.Queue + "-backlog"
	}
	return s.cfg.Topic + "-" + s.cfg.Subscription + "-backlog"
}

// Read implements [autoscale.Source]. The state is Disabled if the queue or
// subscription is disabled for receiving: no instance could process its messages.
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

var errMissing = errors.New("it does not exist in this namespace")

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
	if n == nil { // deleted in between
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

// disabled reports whether nothing can be received.
func disabled(s *admin.EntityStatus) bool {
	return s != nil && (*s == admin.EntityStatusDisabled || *s == admin.EntityStatusReceiveDisabled)
}
