package emulator

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/sluice-go/sluice/emulator/internal/servicebus"
	"github.com/sluice-go/sluice/internal/amqp"
)

// ServiceBusQueue describes a queue or a topic's subscription.
type ServiceBusQueue struct {
	// Name has up to 260 letters, digits, periods, hyphens, underscores and slashes;
	// that of a subscription, up to 50.
	Name string
	// Lock is how long a received message, or a session, is locked, up to 5 minutes.
	// Default 1 minute.
	Lock time.Duration
	// MaxDeliveries is the delivery count at which a message becomes a dead letter.
	// Default 10.
	MaxDeliveries int
	// TTL is the maximum time to live of messages. Default: unlimited.
	TTL time.Duration
	// KeepExpired makes expired messages dead letters. Default: they are removed.
	KeepExpired bool
	// MaxBytes is the maximum size of all messages, dead letters included. Default 1
	// GiB.
	MaxBytes int64
	// Sessions makes receivers lock a session and receive its messages in order.
	Sessions bool
}

func (q *ServiceBusQueue) config() *servicebus.QueueConfig {
	return &servicebus.QueueConfig{Lock: q.Lock, MaxDeliveries: q.MaxDeliveries, TTL: q.TTL, KeepExpired: q.KeepExpired, MaxBytes: q.MaxBytes, Sessions: q.Sessions}
}

// ServiceBusTopic describes a topic. Each of its subscriptions gets every message:
// filters are not supported.
type ServiceBusTopic struct {
	// Name follows the rules for a queue's; no queue may have the same name.
	Name string
	// Subscriptions are the topic's subscriptions.
	Subscriptions []ServiceBusQueue
}

// ServiceBusConfig holds the settings of a [ServiceBus]. The zero value works.
type ServiceBusConfig struct {
	// Listen is the address for connections without TLS. Default "127.0.0.1:0", a free
	// port. "-" is none.
	Listen string
	// TLSListen is the address for TLS connections, with a self-signed certificate made
	// on start. As on Azure's port 443, it also serves the administration API and AMQP
	// over WebSockets. Default: none.
	TLSListen string
	// TLSCertOut is a file to which the certificate is written in PEM format, so that
	// clients can trust it. Default: none.
	TLSCertOut string
	// AdminListen is an address for the administration API alone: HTTPS, with a
	// self-signed certificate made on start. Default: none.
	AdminListen string
	// AdminCertOut is a file to which that certificate is written in PEM format.
	// Default: none.
	AdminCertOut string
	// Dir is the directory that keeps entities and messages. It is created if it
	// doesn't exist. Only one namespace at a time can use it. Default: they are in
	// memory.
	Dir string
	// Keys are the shared access keys, of which clients must have one. Default: no
	// authentication. The connection string has a development key, but any other is
	// accepted as well.
	Keys []Key
	// Issuer is whose access tokens are accepted, as those of Entra ID on Azure, besides the
	// keys. The TLS address then serves the issuer's requests, too. Default: none.
	Issuer *Issuer
	// Premium sets the maximum size of a message or batch to 1 MiB, as on Azure's
	// premium tier. Default: 256 KiB, as on the standard tier.
	Premium bool
	// AsAzure makes the namespace as strict and inexact as those on Azure. Default: nil, nothing
	// of that.
	AsAzure *AsAzure
	// Control is the loopback address of the control endpoint, plain HTTP: see the
	// package documentation. Default: none.
	Control string
	// IdleTimeout is how long a connection may be idle before it is closed. Default 4
	// minutes.
	IdleTimeout time.Duration
	// Log receives errors, and closed connections at debug level. Default: nothing is
	// logged.
	Log *slog.Logger
}

// ServiceBus is an embedded Service Bus namespace: queues, topics and subscriptions
// over AMQP 1.0, on TCP, TLS and WebSockets, and their administration over HTTPS. It is
// safe for concurrent use.
//
//	srv, err := emulator.StartServiceBus([]emulator.ServiceBusQueue{{Name: "orders"}}, nil, nil)
//	...
//	defer srv.Close()
//	client, err := azservicebus.NewClientFromConnectionString(srv.ConnectionString(), nil)
//
// With a directory, an operation is on disk before it is acknowledged to the client:
// sending, settling and scheduling a message. Locks don't survive a restart: the
// messages are available again, and their delivery isn't counted.
//
// Not supported, and rejected: transactions, rules (except the default one, by which
// all messages pass), duplicate detection, forwarding and partitioning.
type ServiceBus struct {
	namespace
	azure   *busAsAzure
	started time.Time
	broker  *servicebus.Broker
	admin   busAdmin
	control *httpServer // nil if there is none
}

// StartServiceBus starts a namespace with the queues and topics. If cfg has a
// directory, entities that exist there keep their settings and messages. A nil cfg
// stands for the defaults. It returns an error if a setting is invalid, the directory
// is in use or damaged, or an address can't be listened on.
func StartServiceBus(queues []ServiceBusQueue, topics []ServiceBusTopic, cfg *ServiceBusConfig) (*ServiceBus, error) {
	var c ServiceBusConfig
	if cfg != nil {
		c = *cfg
	}
	s := &ServiceBus{azure: newBusAsAzure(c.AsAzure, c.Premium), started: time.Now()}
	s.admin.bus = s
	if err := s.start(queues, topics, &c); err != nil {
		return nil, fmt.Errorf("emulator: service bus: %w", err)
	}
	return s, nil
}

func (s *ServiceBus) start(queues []ServiceBusQueue, topics []ServiceBusTopic, c *ServiceBusConfig) (err error) {
	common := &namespaceConfig{
		listen: c.Listen, tlsListen: c.TLSListen, tlsCertOut: c.TLSCertOut, keys: c.Keys, issuer: c.Issuer, idleTimeout: c.IdleTimeout, log: c.Log,
		requests: s.admin.share,
	}
	s.azure.limit(common)
	if c.AdminCertOut != "" && c.AdminListen == "" {
		return fmt.Errorf("a file for the administration API's certificate, %s, but no address for the API to listen on", c.AdminCertOut)
	}
	if err := s.prepare(common, func(c *amqp.Conn) amqp.Peer { return &busPeer{peer: newPeer(&s.namespace, c), bus: s} }); err != nil {
		return err
	}
	s.broker, err = servicebus.Open(c.Dir, &servicebus.Options{OnError: func(err error) { s.log.Error("Service Bus journal failed", "error", err) }})
	if err != nil {
		return err
	}
	if err = s.define(queues, topics); err == nil {
		err = s.listen(common)
	}
	if err == nil {
		s.control, err = startControl(c.Control, s.controlMux(), s.log)
	}
	if err == nil && c.AdminListen != "" {
		err = s.admin.listen(c.AdminListen, c.AdminCertOut)
	}
	if err != nil {
		return errors.Join(err, s.Close())
	}
	return nil
}

// define creates the entities that don't exist yet. Those in the directory keep their
// settings.
func (s *ServiceBus) define(queues []ServiceBusQueue, topics []ServiceBusTopic) error {
	created := make(map[string]bool) // an entity that is configured twice is an error
	create := func(name string, there bool, create func() error) error {
		name = strings.ToLower(name)
		if there && !created[name] {
			return nil
		}
		created[name] = true
		return create()
	}
	for i := range queues {
		q := &queues[i]
		_, there := s.broker.Queue(q.Name)
		err := create(q.Name, there, func() error {
			if err := s.azure.checkQueue(q.config()); err != nil {
				return fmt.Errorf("queue %s: %w", q.Name, err)
			}
			_, err := s.broker.CreateQueue(q.Name, q.config())
			return err
		})
		if err != nil {
			return err
		}
	}
	for i := range topics {
		t := &topics[i]
		topic, there := s.broker.Topic(t.Name)
		err := create(t.Name, there, func() (err error) {
			topic, err = s.broker.CreateTopic(t.Name, nil)
			return err
		})
		if err != nil {
			return err
		}
		for j := range t.Subscriptions {
			q := &t.Subscriptions[j]
			_, there := topic.Subscription(q.Name)
			err := create(t.Name+"/"+q.Name, there, func() error {
				if err := s.azure.checkQueue(q.config()); err != nil {
					return fmt.Errorf("subscription %s/%s: %w", t.Name, q.Name, err)
				}
				_, err := topic.Subscribe(q.Name, q.config())
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// Close disconnects the clients and closes the journal. Later calls return the result
// of the first.
func (s *ServiceBus) Close() error {
	s.close.Do(func() {
		err := errors.Join(s.control.close(), s.admin.close())
		s.disconnect()
		s.err = errors.Join(err, s.broker.Close())
	})
	return s.err
}

// ControlAddr returns the address of the control endpoint, "" if there is none.
func (s *ServiceBus) ControlAddr() string { return s.control.addr() }

// ServiceBusCounts are the numbers of messages in a queue or subscription. Locked and
// deferred ones count as active.
type ServiceBusCounts struct {
	Active, DeadLetters, Scheduled int64
	Bytes                          int64 // of all messages, encoded
}

// Counts returns the counts of a queue, or of a subscription
// "topic/Subscriptions/name". It returns an error if there is none.
func (s *ServiceBus) Counts(path string) (ServiceBusCounts, error) {
	n, err := parseBusAddress(path)
	if err != nil {
		return ServiceBusCounts{}, err
	}
	q, ok := s.queue(n)
	if !ok {
		return ServiceBusCounts{}, fmt.Errorf("queue or subscription %.300s: %w", path, servicebus.ErrNotFound)
	}
	return ServiceBusCounts(q.Counts()), nil
}

// queue returns the queue or subscription of a node.
func (s *ServiceBus) queue(n busNode) (*servicebus.Queue, bool) {
	if n.subscription == "" {
		return s.broker.Queue(n.name)
	}
	t, ok := s.broker.Topic(n.name)
	if !ok {
		return nil, false
	}
	return t.Subscription(n.subscription)
}
