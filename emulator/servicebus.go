package emulator

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/sluice-go/sluice/internal/amqp"
	"github.com/sluice-go/sluice/internal/bus"
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
}

func (q *ServiceBusQueue) config() *bus.QueueConfig {
	return &bus.QueueConfig{Lock: q.Lock, MaxDeliveries: q.MaxDeliveries, TTL: q.TTL, KeepExpired: q.KeepExpired, MaxBytes: q.MaxBytes}
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

// ServiceBus is an embedded Service Bus namespace: queues, topics and subscriptions over AMQP 1.0, on TCP, TLS and WebSockets. The official client
// libraries work against it unmodified. Its messages are in memory, and gone when it is closed. Its methods may be called concurrently.
//
//	srv, err := emulator.StartServiceBus([]emulator.ServiceBusQueue{{Name: "orders"}}, nil, nil)
//	...
//	defer srv.Close()
//	client, err := azservicebus.NewClientFromConnectionString(srv.ConnectionString(), nil)
//
// What isn't there is refused: sessions, scheduled and deferred messages, transactions and rules. In a [Fault], the hub is the path of a queue,
// topic or subscription.
type ServiceBus struct {
	front
	broker  *bus.Broker
	admin   *busAdmin   // nil if there is none
	control *httpServer // nil if there is none
}

// StartServiceBus makes the queues and topics, and listens.
func StartServiceBus(queues []ServiceBusQueue, topics []ServiceBusTopic, cfg *ServiceBusConfig) (*ServiceBus, error) {
	var c ServiceBusConfig
	if cfg != nil {
		c = *cfg
	}
	s := &ServiceBus{broker: bus.New()}
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
	if err := s.prepare(reach, func(c *amqp.Conn) amqp.Peer { return &busPeer{peer: newPeer(&s.front, c), bus: s} }); err != nil {
		return err
	}
	for i := range queues {
		if _, err := s.broker.CreateQueue(queues[i].Name, queues[i].config()); err != nil {
			return err
		}
	}
	for _, t := range topics {
		topic, err := s.broker.CreateTopic(t.Name)
		if err != nil {
			return err
		}
		for i := range t.Subscriptions {
			if _, err := topic.Subscribe(t.Subscriptions[i].Name, t.Subscriptions[i].config()); err != nil {
				return err
			}
		}
	}
	if err = s.listen(reach); err == nil {
		s.control, err = startControl(c.Control, s.controlMux(), s.log)
	}
	if err == nil && c.AdminListen != "" {
		s.admin, err = startBusAdmin(s, c.AdminListen)
	}
	if err != nil {
		return errors.Join(err, s.Close())
	}
	return nil
}

// Close disconnects the clients and waits for all of it. The messages are gone.
func (s *ServiceBus) Close() error {
	s.close.Do(func() {
		s.err = errors.Join(s.control.close(), s.admin.close())
		s.hangUp()
	})
	return s.err
}

// ControlAddr is the address of the control endpoint, "" if there is none.
func (s *ServiceBus) ControlAddr() string { return s.control.addr() }

// ServiceBusCounts are the messages of a queue or subscription, locked ones among them.
type ServiceBusCounts struct {
	Active, DeadLetters int64
	Bytes               int64 // of the messages, as the broker stores them
}

// Counts counts the messages of a queue, or of a subscription "topic/Subscriptions/name".
func (s *ServiceBus) Counts(path string) (ServiceBusCounts, error) {
	n, err := parseBusAddress(path)
	if err != nil {
		return ServiceBusCounts{}, err
	}
	q, ok := s.queue(n)
	if !ok {
		return ServiceBusCounts{}, fmt.Errorf("queue or subscription %.300s: %w", path, bus.ErrNotFound)
	}
	return ServiceBusCounts(q.Counts()), nil
}

// queue finds the queue or subscription of a node.
func (s *ServiceBus) queue(n busNode) (*bus.Queue, bool) {
	if n.subscription == "" {
		return s.broker.Queue(n.name)
	}
	t, ok := s.broker.Topic(n.name)
	if !ok {
		return nil, false
	}
	return t.Subscription(n.subscription)
}
