// Package servicebus counts the active messages of a queue or subscription of Azure
// Service Bus.
package servicebus

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
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
	opts.Transport = noted{opts.Transport}
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
	var last attempt
	r, err := read(context.WithValue(ctx, attemptKey{}, &last))
	switch {
	case err == nil:
		return r, nil
	case ctx.Err() != nil:
		return r, fmt.Errorf("service bus: %s%s: %w%s", what, last.where(), context.Cause(ctx), last.why())
	}
	return r, fmt.Errorf("service bus: %s: %w", what, azerror.Shorten(err))
}

// attempt is the last request of a Read. The SDK repeats requests, and its error says nothing about
// them once the time is up.
type attempt struct {
	mu   sync.Mutex
	host string
	err  error // why there was no response; nil: there was one, or none yet
}

type attemptKey struct{}

// noted notes requests in the attempt of their context.
type noted struct{ policy.Transporter }

func (n noted) Do(r *http.Request) (*http.Response, error) {
	last, ok := r.Context().Value(attemptKey{}).(*attempt)
	if ok {
		last.note(r.URL.Host, nil)
	}
	response, err := n.Transporter.Do(r)
	if ok && err != nil && r.Context().Err() == nil {
		last.note(r.URL.Host, err)
	}
	return response, err
}

// note keeps an earlier cause until there is another one.
func (a *attempt) note(host string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.host = host; err != nil {
		a.err = err
	}
}

// where names the host that was asked.
func (a *attempt) where() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.host == "" {
		return ""
	}
	return " at " + a.host
}

// why is the cause of a request without a response, without the URL.
func (a *attempt) why() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var u *url.Error
	switch {
	case a.err == nil:
		return ""
	case errors.As(a.err, &u):
		return fmt.Sprintf(" (last attempt: %v)", u.Err)
	}
	return fmt.Sprintf(" (last attempt: %v)", a.err)
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
