// Package emulator is an embedded Event Hubs server: it speaks AMQP 1.0 as Azure Event Hubs does, over TCP, TLS and WebSockets, and keeps the
// events in memory or in a directory. The official client libraries work against it unmodified.
//
//	srv, err := emulator.Start([]emulator.Hub{{Name: "flights", Partitions: 4}}, nil)
//	...
//	defer srv.Close()
//	client, err := azeventhubs.NewProducerClientFromConnectionString(srv.ConnectionString(), "flights", nil)
//
// An accepted event is on disk, where there is a directory. What isn't there: HTTPS, Kafka, publisher policies,
// capture, and Entra ID tokens where keys are configured.
package emulator

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/sluice-go/sluice/internal/amqp"
	"github.com/sluice-go/sluice/internal/hub"
	"github.com/sluice-go/sluice/internal/websocket"
)

// Server is a running emulator. Its methods may be called concurrently.
type Server struct {
	cfg    Config
	log    *slog.Logger
	keys   map[string]Key
	broker *hub.Broker
	amqp   *amqp.Server
	plain  net.Listener
	secure net.Listener
	cert   *certificate
	faults Faults
	links  linkSet

	control   *http.Server
	controlAt net.Listener

	serve sync.WaitGroup
	close sync.Once
	err   error // of Close
}

// Start opens the hubs and listens. The events of a directory are there again; a hub may be given more partitions than it had, but not
// fewer.
func Start(hubs []Hub, cfg *Config) (*Server, error) {
	s := &Server{}
	if cfg != nil {
		s.cfg = *cfg
	}
	if s.cfg.Listen == "" {
		s.cfg.Listen = "127.0.0.1:0"
	}
	if s.cfg.Listen == "-" && s.cfg.TLSListen == "" {
		return nil, errors.New("emulator: neither a plain nor a TLS address to listen on")
	}
	if s.cfg.TLSCertOut != "" && s.cfg.TLSListen == "" {
		return nil, fmt.Errorf("emulator: a file for the certificate, %s, but no TLS address to listen on", s.cfg.TLSCertOut)
	}
	s.log = s.cfg.Log
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	var err error
	if s.keys, err = byName(s.cfg.Keys); err != nil {
		return nil, fmt.Errorf("emulator: %w", err)
	}
	configs := make([]hub.Config, len(hubs))
	for i, h := range hubs {
		configs[i] = hub.Config{Name: h.Name, Partitions: h.Partitions, ConsumerGroups: h.ConsumerGroups}
	}
	if s.cfg.MaxMessageBytes < 0 || s.cfg.MaxMessageBytes > maxMessage {
		return nil, fmt.Errorf("emulator: messages of up to %d bytes: choose up to %d", s.cfg.MaxMessageBytes, maxMessage)
	}
	broker, err := hub.Open(s.cfg.Dir, configs, &hub.Options{
		Retention: s.cfg.Retention, RetentionBytes: s.cfg.RetentionBytes,
		RetentionFailed: func(err error) { s.log.Error("retention failed, it will be tried again", "error", err) },
	})
	if err != nil {
		return nil, fmt.Errorf("emulator: %w", err)
	}
	s.broker = broker
	s.amqp = amqp.NewServer(s.newClient, &amqp.Config{
		MaxMessageSize: s.cfg.MaxMessageBytes, IdleTimeout: s.cfg.IdleTimeout, Log: s.log,
	})
	err = s.listen()
	if err == nil && s.cfg.Control != "" {
		err = s.startControl(s.cfg.Control)
	}
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("emulator: %w", err)
	}
	return s, nil
}

func (s *Server) listen() error {
	if s.cfg.Listen != "-" {
		l, err := net.Listen("tcp", s.cfg.Listen)
		if err != nil {
			return err
		}
		s.plain = l
		s.accept(s.webSocket().Listener(l))
	}
	if s.cfg.TLSListen == "" {
		return nil
	}
	l, err := net.Listen("tcp", s.cfg.TLSListen)
	if err != nil {
		return err
	}
	s.secure = l
	if s.cert, err = newCertificate(l.Addr(), s.cfg.TLSListen, s.cfg.TLSCertOut); err != nil {
		l.Close()
		return err
	}
	s.accept(s.webSocket().Listener(tls.NewListener(l, s.cert.serverConfig())))
	return nil
}

// webSocket is where AMQP is spoken over WebSockets, on the same ports. The client libraries ask for a subprotocol of their own, the standard
// calls it amqp. Where there are no keys, the browser is all that keeps web pages from being clients.
func (s *Server) webSocket() websocket.Endpoint {
	return websocket.Endpoint{Path: "/$servicebus/websocket", Protocols: []string{"AMQPWSB10", "amqp"}, AnyOrigin: len(s.keys) > 0}
}

func (s *Server) accept(l net.Listener) {
	s.serve.Add(1)
	go func() {
		defer s.serve.Done()
		if err := s.amqp.Serve(l); !errors.Is(err, amqp.ErrServerClosed) {
			s.log.Error("emulator stopped accepting connections", "error", err)
		}
	}()
}

// Close disconnects the clients, lets appends in progress finish, closes the logs and waits for all of it.
func (s *Server) Close() error {
	s.close.Do(func() {
		err := s.stopControl()
		s.amqp.Close()
		s.serve.Wait()
		s.err = errors.Join(err, s.broker.Close())
	})
	return s.err
}

// Addr is the address of the plain listener, "" if there is none.
func (s *Server) Addr() string { return address(s.plain) }

// TLSAddr is the address of the TLS listener, "" if there is none.
func (s *Server) TLSAddr() string { return address(s.secure) }

// ControlAddr is the address of the control endpoint, "" if there is none.
func (s *Server) ControlAddr() string { return address(s.controlAt) }

func address(l net.Listener) string {
	if l == nil {
		return ""
	}
	return l.Addr().String()
}

// ConnectionString is what clients of the plain listener connect with; where there is only a TLS listener, it is the same as
// [Server.TLSConnectionString].
func (s *Server) ConnectionString() string {
	if s.plain == nil {
		return s.TLSConnectionString()
	}
	return "Endpoint=sb://" + s.endpoint(s.plain, "5672") + s.credentials() + ";UseDevelopmentEmulator=true"
}

// TLSConnectionString is what clients of the TLS listener connect with, "" if there is none. They must trust the certificate; where the port
// isn't 5671, some also need the server's name for its check, and the address as a custom endpoint.
func (s *Server) TLSConnectionString() string {
	if s.secure == nil {
		return ""
	}
	return "Endpoint=sb://" + s.endpoint(s.secure, "5671") + s.credentials()
}

func (s *Server) endpoint(l net.Listener, usual string) string {
	host, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return l.Addr().String()
	}
	if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
		host = "localhost"
	}
	if port == usual {
		if strings.Contains(host, ":") {
			return "[" + host + "]"
		}
		return host
	}
	return net.JoinHostPort(host, port)
}

// credentials are those of the first key with all rights, or of the first.
func (s *Server) credentials() string {
	key := Key{Name: devKeyName, Secret: devKey}
	if len(s.cfg.Keys) > 0 {
		key = s.cfg.Keys[max(0, slices.IndexFunc(s.cfg.Keys, func(k Key) bool { return k.Rights.has(Listen) && k.Rights.has(Send) }))]
	}
	return ";SharedAccessKeyName=" + key.Name + ";SharedAccessKey=" + key.Secret
}

// CertPool holds the certificate of the TLS listener, nil if there is none.
func (s *Server) CertPool() *x509.CertPool {
	if s.cert == nil {
		return nil
	}
	return s.cert.pool
}

// Faults are what goes wrong on demand.
func (s *Server) Faults() *Faults { return &s.faults }

// DropConnections cuts all connections as a failing network would, and returns how many there were. Clients can connect again at once.
func (s *Server) DropConnections() int { return s.amqp.Drop() }

// DetachLinks detaches the links that send to or receive from a partition of a hub, as Azure does now and then, and returns how many there were.
// With partition "" it is all links of the hub, with hub "" all there are.
func (s *Server) DetachLinks(hub, partition string) int { return s.links.detach(hub, partition) }

// Recreate deletes a hub with its events, and creates it again, empty and with a later creation time. Its links are detached.
func (s *Server) Recreate(name string) error { return s.broker.Recreate(name) }

// Trim removes the events of a partition whose sequence numbers are below before, as retention does.
func (s *Server) Trim(name, partition string, before int64) error {
	h, ok := s.broker.Hub(name)
	if !ok {
		return fmt.Errorf("event hub %q: %w", name, hub.ErrUnknownHub)
	}
	p, ok := h.Partition(partition)
	if !ok {
		return fmt.Errorf("event hub %s has no partition %q", h.Name(), partition)
	}
	return p.Trim(before)
}
