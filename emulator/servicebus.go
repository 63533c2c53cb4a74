package emulator

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/sluice-go/sluice/emulator/internal/amqp"
	"github.com/sluice-go/sluice/emulator/internal/servicebus"
)

// ServiceBusQueue describes a queue, or a subscription of a topic.
type ServiceBusQueue struct {
	// Name is up to 260 letters, digits, periods, hyphens, underscores and slashes; of a subscription, up to 50.
	Name string
	// Lock is how long a received message is locked, up to 5 minutes. Default 1 minute.
	Lock time.Duration
	// MaxDeliveries is how often a message may be received before it becomes a dead letter. Default 10.
	MaxDeliveries int
	// TTL is how long messages live at most. Default: for ever.
	TTL time.Duration
	// KeepExpired has messages that expire become dead letters. Default: they are dropped.
	KeepExpired bool
	// MaxBytes bounds what the queue holds, dead letters included. Default 1 GiB.
	MaxBytes int64
	// Sessions has clients receive by session.
	Sessions bool
}

func (q *ServiceBusQueue) config() *servicebus.QueueConfig {
	return &servicebus.QueueConfig{Lock: q.Lock, MaxDeliveries: q.MaxDeliveries, TTL: q.TTL, KeepExpired: q.KeepExpired, MaxBytes: q.MaxBytes, Sessions: q.Sessions}
}

// ServiceBusTopic describes a topic. Each of its subscriptions gets every message: there are no rules.
type ServiceBusTopic struct {
	// Name is as that of a queue; no queue may have the same.
	Name string
	// Subscriptions are the topic's.
	Subscriptions []ServiceBusQueue
}

// ServiceBusConfig holds the settings of a [ServiceBus]. The zero value works.
type ServiceBusConfig struct {
	// Listen is the address for plain connections. Default "127.0.0.1:0", a free port. "-" is none.
	Listen string
	// TLSListen is the address for TLS connections, with a certificate made for it. Default: none.
	TLSListen string
	// TLSCertOut is a file to which the certificate is written in PEM form, so that clients can trust it. Default: none.
	TLSCertOut string
	// AdminListen is the address of the administration API: HTTPS, with a certificate made for it. Default: none.
	AdminListen string
	// AdminCertOut is a file to which that certificate is written in PEM form, so that clients can trust it. Default: none.
	AdminCertOut string
	// Dir is the directory that keeps entities and messages. It is created if missing; one namespace at a time can use it. Default: memory.
	Dir string
	// Keys are the shared access keys. Clients must prove that they have one. Default: a development key that clients may use, but needn't:
	// any token passes.
	Keys []Key
	// Premium has messages and batches be up to 1 MiB large, as on Azure's premium tier. Default: 256 KiB, as on the standard tier.
	Premium bool
	// Control is the address of an endpoint by which test programs have faults happen: plain HTTP, on loopback. Default: none.
	Control string
	// IdleTimeout is how long a connection may be silent before it is closed. Default 4 minutes.
	IdleTimeout time.Duration
	// Log receives connections' ends at debug level, and failures. Default: nothing is logged.
	Log *slog.Logger
}

// Sizes of the largest message or batch, by tier.
const (
	maxStandard = 256 << 10
	maxPremium  = 1 << 20
)

// ServiceBus is an embedded Service Bus namespace: queues, topics and subscriptions over AMQP 1.0, on TCP, TLS and WebSockets, and their
// administration over HTTPS. Its methods may be called concurrently.
//
//	srv, err := emulator.StartServiceBus([]emulator.ServiceBusQueue{{Name: "orders"}}, nil, nil)
//	...
//	defer srv.Close()
//	client, err := azservicebus.NewClientFromConnectionString(srv.ConnectionString(), nil)
//
// Where there is a directory, what a client has been told is on disk: that a message was accepted, settled, or scheduled. Locks don't survive
// a restart: messages are free again, and a delivery that was under way isn't counted.
//
// What isn't there is refused: transactions, rules other than the one that lets all pass, duplicate detection, forwarding and partitioning.
type ServiceBus struct {
	front
	premium bool
	started time.Time
	broker  *servicebus.Broker
	admin   *busAdmin   // nil if there is none
	control *httpServer // nil if there is none
}

// StartServiceBus makes the queues and topics, and listens.
func StartServiceBus(queues []ServiceBusQueue, topics []ServiceBusTopic, cfg *ServiceBusConfig) (*ServiceBus, error) {
	var c ServiceBusConfig
	if cfg != nil {
		c = *cfg
	}
	s := &ServiceBus{premium: c.Premium, started: time.Now()}
	if err := s.start(queues, topics, &c); err != nil {
		return nil, fmt.Errorf("emulator: service bus: %w", err)
	}
	return s, nil
}

func (s *ServiceBus) start(queues []ServiceBusQueue, topics []ServiceBusTopic, c *ServiceBusConfig) (err error) {
	reach := &frontConfig{
		listen: c.Listen, tlsListen: c.TLSListen, tlsCertOut: c.TLSCertOut, keys: c.Keys, idleTimeout: c.IdleTimeout, maxMessage: maxStandard, log: c.Log,
	}
	if c.Premium {
		reach.maxMessage = maxPremium
	}
	if c.AdminCertOut != "" && c.AdminListen == "" {
		return fmt.Errorf("a file for the administration API's certificate, %s, but no address for the API to listen on", c.AdminCertOut)
	}
	if err := s.prepare(reach, func(c *amqp.Conn) amqp.Peer { return &busPeer{peer: newPeer(&s.front, c), bus: s} }); err != nil {
		return err
	}
	s.broker, err = servicebus.Open(c.Dir, &servicebus.Options{OnError: func(err error) { s.log.Error("the journal of the Service Bus", "error", err) }})
	if err != nil {
		return err
	}
	if err = s.define(queues, topics); err == nil {
		err = s.listen(reach)
	}
	if err == nil {
		s.control, err = startControl(c.Control, s.controlMux(), s.log)
	}
	if err == nil && c.AdminListen != "" {
		s.admin, err = startBusAdmin(s, c.AdminListen, c.AdminCertOut)
	}
	if err != nil {
		return errors.Join(err, s.Close())
	}
	return nil
}

// define creates what isn't there yet. What a directory has keeps the settings that it has there.
func (s *ServiceBus) define(queues []ServiceBusQueue, topics []ServiceBusTopic) error {
	created := make(map[string]bool) // what is stated twice is a mistake
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

// Close disconnects the clients, closes the journal, and waits for all of it.
func (s *ServiceBus) Close() error {
	s.close.Do(func() {
		err := errors.Join(s.control.close(), s.admin.close())
		s.hangUp()
		s.err = errors.Join(err, s.broker.Close())
	})
	return s.err
}

// ControlAddr is the address of the control endpoint, "" if there is none.
func (s *ServiceBus) ControlAddr() string { return s.control.addr() }

// ServiceBusCounts are the messages of a queue or subscription, locked and deferred ones among the active.
type ServiceBusCounts struct {
	Active, DeadLetters, Scheduled int64
	Bytes                          int64 // of the messages, as the broker stores them
}

// Counts counts the messages of a queue, or of a subscription "topic/Subscriptions/name".
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

// queue finds the queue or subscription of a node.
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
