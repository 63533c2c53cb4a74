package emulator

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/sluice-go/sluice/emulator/internal/amqp"
	"github.com/sluice-go/sluice/emulator/internal/eventhubs"
)

// Hub describes an event hub.
type Hub struct {
	// Name is up to 256 letters, digits, periods, hyphens and underscores.
	Name string
	// Partitions is the number of partitions, 1 to 1,024.
	Partitions int
	// ConsumerGroups are the groups that exist beside $Default. With none, every group exists.
	ConsumerGroups []string
}

// Config holds the settings of a [Server]. The zero value works.
type Config struct {
	// Listen is the address for plain connections. Default "127.0.0.1:0", a free port. "-" is none.
	Listen string
	// TLSListen is the address for TLS connections, with a certificate made for it. Default: none.
	TLSListen string
	// TLSCertOut is a file to which the certificate is written in PEM form, so that clients can trust it. Default: none.
	TLSCertOut string
	// Dir is the directory that keeps the events. It is created if missing; one server at a time can use it. Default: memory.
	Dir string
	// Keys are the shared access keys. Clients must prove that they have one. Default: a development key that clients may use, but needn't:
	// any token passes.
	Keys []Key
	// MaxMessageBytes is the size of the largest message or batch that may be sent, up to 1 MiB. Default 1 MiB, as on Azure's standard tier; on
	// the basic tier it is 256 KiB.
	MaxMessageBytes int
	// Retention is how long events are kept. What is older goes soon, within a hundredth of that or a minute, whichever is less. Default: events
	// are kept for ever.
	Retention time.Duration
	// RetentionBytes is how much is kept of each partition, its newest events, at least 1 MiB. Default: everything.
	RetentionBytes int64
	// Control is the address of an endpoint by which test programs have faults happen: plain HTTP, on loopback. Default: none.
	Control string
	// IdleTimeout is how long a connection may be silent before it is closed. Default 4 minutes.
	IdleTimeout time.Duration
	// Log receives connections' ends at debug level, and failures. Default: nothing is logged.
	Log *slog.Logger
}

const maxMessage = 1 << 20

// Server is an embedded Event Hubs namespace. Its methods may be called concurrently.
//
// What isn't there: HTTPS, Kafka, publisher policies, capture, and Entra ID tokens where keys are configured.
type Server struct {
	front
	broker  *eventhubs.Broker
	control *httpServer // nil if there is none
}

// Start opens the hubs and listens. The events of a directory are there again; a hub may be given more partitions than it had, but not
// fewer.
func Start(hubs []Hub, cfg *Config) (*Server, error) {
	var c Config
	if cfg != nil {
		c = *cfg
	}
	s := &Server{}
	if err := s.start(hubs, &c); err != nil {
		return nil, fmt.Errorf("emulator: %w", err)
	}
	return s, nil
}

func (s *Server) start(hubs []Hub, cfg *Config) error {
	if cfg.MaxMessageBytes < 0 || cfg.MaxMessageBytes > maxMessage {
		return fmt.Errorf("messages of up to %d bytes: choose up to %d", cfg.MaxMessageBytes, maxMessage)
	}
	reach := &frontConfig{
		listen: cfg.Listen, tlsListen: cfg.TLSListen, tlsCertOut: cfg.TLSCertOut, keys: cfg.Keys,
		idleTimeout: cfg.IdleTimeout, maxMessage: cfg.MaxMessageBytes, log: cfg.Log,
	}
	if err := s.prepare(reach, func(c *amqp.Conn) amqp.Peer { return &hubPeer{peer: newPeer(&s.front, c), broker: s.broker} }); err != nil {
		return err
	}
	configs := make([]eventhubs.Config, len(hubs))
	for i, h := range hubs {
		configs[i] = eventhubs.Config{Name: h.Name, Partitions: h.Partitions, ConsumerGroups: h.ConsumerGroups}
	}
	var err error
	s.broker, err = eventhubs.Open(cfg.Dir, configs, &eventhubs.Options{
		Retention: cfg.Retention, RetentionBytes: cfg.RetentionBytes,
		OnRetentionError: func(err error) { s.log.Error("retention failed, it will be tried again", "error", err) },
	})
	if err != nil {
		return err
	}
	if err = s.listen(reach); err == nil {
		s.control, err = startControl(cfg.Control, s.controlHandler(), s.log)
	}
	if err != nil {
		return errors.Join(err, s.Close())
	}
	return nil
}

// Close disconnects the clients, lets appends in progress finish, closes the logs and waits for all of it.
func (s *Server) Close() error {
	s.close.Do(func() {
		err := s.control.close()
		s.hangUp()
		s.err = errors.Join(err, s.broker.Close())
	})
	return s.err
}

// ControlAddr is the address of the control endpoint, "" if there is none.
func (s *Server) ControlAddr() string { return s.control.addr() }

// Recreate deletes a hub with its events, and creates it again, empty and with a later creation time. Its links are detached.
func (s *Server) Recreate(name string) error { return s.broker.Recreate(name) }

// Trim removes the events of a partition whose sequence numbers are below before, as retention does.
func (s *Server) Trim(name, partition string, before int64) error {
	h, ok := s.broker.Hub(name)
	if !ok {
		return fmt.Errorf("event hub %q: %w", name, eventhubs.ErrUnknownHub)
	}
	p, ok := h.Partition(partition)
	if !ok {
		return fmt.Errorf("event hub %s has no partition %q", h.Name(), partition)
	}
	return p.Trim(before)
}

// controlHandler serves what control.go lists, and
//
//	POST   /hubs/trim          {"hub": "flights", "partition": "0", "before": 100} removes events as retention does
//	POST   /hubs/recreate      {"hub": "flights"} deletes a hub and creates it again
func (s *Server) controlHandler() http.Handler {
	mux := s.controlMux()
	mux.HandleFunc("POST /hubs/trim", command(func(t wireTarget) (any, error) {
		return struct{}{}, s.Trim(t.Hub, t.Partition, t.Before)
	}))
	mux.HandleFunc("POST /hubs/recreate", command(func(t wireTarget) (any, error) { return struct{}{}, s.Recreate(t.Hub) }))
	return mux
}
