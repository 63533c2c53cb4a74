package emulator

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/sluice-go/sluice/emulator/internal/eventhubs"
	"github.com/sluice-go/sluice/internal/amqp"
)

// Hub describes an event hub.
type Hub struct {
	// Name has up to 256 letters, digits, periods, hyphens and underscores.
	Name string
	// Partitions is the number of partitions, 1 to 1,024.
	Partitions int
	// ConsumerGroups are the consumer groups besides $Default. Without any, every group
	// exists.
	ConsumerGroups []string
}

// Config holds the settings of a [Server]. The zero value works.
type Config struct {
	// Listen is the address for connections without TLS. Default "127.0.0.1:0", a free
	// port. "-" is none.
	Listen string
	// Listener, if set, is what the server accepts connections without TLS from, in place of
	// Listen. In memory, over [net.Pipe], a server works in a bubble of testing/synctest. Close
	// closes it.
	Listener net.Listener
	// TLSListen is the address for TLS connections, with a self-signed certificate made
	// on start. Default: none.
	TLSListen string
	// TLSCertOut is a file to which the certificate is written in PEM format, so that
	// clients can trust it. Default: none.
	TLSCertOut string
	// Dir is the directory that keeps the events. It is created if it doesn't exist.
	// Only one server at a time can use it. Default: events are in memory.
	Dir string
	// Keys are the shared access keys, of which clients must have one. Default: no
	// authentication. The connection string has a development key, but any other is
	// accepted as well.
	Keys []Key
	// Issuer is whose access tokens are accepted, as those of Entra ID on Azure, besides the
	// keys. The TLS address then serves the issuer's requests, too. Default: none.
	Issuer *Issuer
	// MaxMessageBytes is the maximum size of a message or batch, up to 1 MiB. Default 1
	// MiB, as on Azure's standard tier; on the basic tier it is 256 KiB.
	MaxMessageBytes int
	// Retention is how long events are kept. Older ones are removed within a hundredth
	// of that time or a minute, whichever is less. Default: unlimited.
	Retention time.Duration
	// RetentionBytes is how many bytes of the newest events each partition keeps, at
	// least 1 MiB. Default: unlimited.
	RetentionBytes int64
	// AsAzure makes the namespace as strict and inexact as those on Azure. Default: nil, nothing
	// of that.
	AsAzure *AsAzure
	// Control is the loopback address of the control endpoint, plain HTTP: see the
	// package documentation. Default: none.
	Control string
	// IdleTimeout is how long a connection may be idle before it is closed. Default 4
	// minutes.
	IdleTimeout time.Duration
	// AuthTimeout is how long a client may take to authenticate after it has connected, if
	// keys are configured. Until then the server keeps little for its connection. Default 1
	// minute.
	AuthTimeout time.Duration
	// Log receives errors, and closed connections at debug level. Default: nothing is
	// logged.
	Log *slog.Logger
}

const maxMessage = 1 << 20

// Server is an embedded Event Hubs namespace. It is safe for concurrent use. Not
// supported: HTTPS except for an [Issuer], Kafka, publisher policies and capture. Tokens of
// Entra ID itself are accepted only where everything is: see [Issuer].
type Server struct {
	namespace
	azure   *hubsAsAzure
	broker  *eventhubs.Broker
	tokens  *httpServer // the issuer's requests at the TLS address; nil if there is none
	control *httpServer // nil if there is none
}

// Start starts a namespace with the hubs. If cfg has a directory, the hubs have the
// events in it; a hub may have more partitions than before, but not fewer. A nil cfg
// stands for the defaults. It returns an error if a setting is invalid, the directory
// is in use or damaged, or an address can't be listened on.
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
		return fmt.Errorf("maximum message size of %d bytes: must be at most %d", cfg.MaxMessageBytes, maxMessage)
	}
	s.azure = newHubsAsAzure(cfg.AsAzure)
	common := &namespaceConfig{
		listen: cfg.Listen, listener: cfg.Listener, tlsListen: cfg.TLSListen, tlsCertOut: cfg.TLSCertOut, keys: cfg.Keys, issuer: cfg.Issuer,
		idleTimeout: cfg.IdleTimeout, authTimeout: cfg.AuthTimeout, maxMessage: cfg.MaxMessageBytes, log: cfg.Log,
		connections: s.azure.Connections, idleLink: s.azure.IdleLink, idleConnection: s.azure.IdleConnection, idleOrigin: "AmqpEventHub",
	}
	if cfg.Issuer != nil {
		common.requests = func(requests net.Listener) { s.tokens = cfg.Issuer.serve(requests, s.log) }
	}
	if err := s.prepare(common, func(c *amqp.Conn) amqp.Peer {
		return &hubPeer{peer: newPeer(&s.namespace, c), broker: s.broker, azure: s.azure}
	}); err != nil {
		return err
	}
	configs := make([]eventhubs.Config, len(hubs))
	for i, h := range hubs {
		configs[i] = eventhubs.Config{Name: h.Name, Partitions: h.Partitions, ConsumerGroups: h.ConsumerGroups}
		if s.azure.KnownGroups && len(h.ConsumerGroups) == 0 {
			configs[i].ConsumerGroups = []string{eventhubs.DefaultGroup}
		}
	}
	var err error
	s.broker, err = eventhubs.Open(cfg.Dir, configs, &eventhubs.Options{
		Retention: cfg.Retention, RetentionBytes: cfg.RetentionBytes,
		OnRetentionError: func(err error) { s.log.Error("retention failed, will retry", "error", err) },
	})
	if err != nil {
		return err
	}
	if err = s.listen(common); err == nil {
		s.control, err = startControl(cfg.Control, s.controlHandler(), s.log)
	}
	if err != nil {
		return errors.Join(err, s.Close())
	}
	return nil
}

// Close disconnects the clients, waits for appends in progress and closes the logs.
// Later calls return the result of the first.
func (s *Server) Close() error {
	s.close.Do(func() {
		err := errors.Join(s.control.close(), s.tokens.close())
		s.disconnect()
		s.err = errors.Join(err, s.broker.Close())
	})
	return s.err
}

// ControlAddr returns the address of the control endpoint, "" if there is none.
func (s *Server) ControlAddr() string { return s.control.addr() }

// Recreate deletes a hub with its events and creates it again, with a later creation
// time. Links to it are detached. It returns an error if there is no such hub.
func (s *Server) Recreate(name string) error { return s.broker.Recreate(name) }

// Trim removes the events of a partition whose sequence numbers are below before, as
// retention does. It returns an error if there is no such hub or partition.
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

// controlHandler serves the control endpoint; doc.go lists the requests.
func (s *Server) controlHandler() http.Handler {
	mux := s.controlMux()
	mux.HandleFunc("POST /hubs/trim", command(func(t wireTarget) (any, error) {
		return struct{}{}, s.Trim(t.Hub, t.Partition, t.Before)
	}))
	mux.HandleFunc("POST /hubs/recreate", command(func(t wireTarget) (any, error) { return struct{}{}, s.Recreate(t.Hub) }))
	mux.HandleFunc("POST /namespace/promote", command(func(t struct {
		Forced bool `json:"forced"`
	}) (any, error) {
		epoch, err := s.Promote(t.Forced)
		return map[string]int64{"epoch": epoch}, err
	}))
	return mux
}
