package emulator

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-go/sluice/emulator/internal/amqp"
	"github.com/sluice-go/sluice/emulator/internal/websocket"
)

// front is what the clients of a namespace meet first: its listeners, keys and links, and the faults that befall them.
type front struct {
	keys   map[string]Key
	shown  Key // in the connection strings
	log    *slog.Logger
	amqp   *amqp.Server
	plain  net.Listener
	secure net.Listener
	cert   *certificate
	faults Faults
	links  linkSet
	meters meterSet

	serve sync.WaitGroup
	close sync.Once
	err   error // of Close
}

// frontConfig is what [Config] and [ServiceBusConfig] have in common, worded there.
type frontConfig struct {
	listen, tlsListen, tlsCertOut string
	keys                          []Key
	idleTimeout                   time.Duration
	maxMessage                    int
	log                           *slog.Logger
}

func (c *frontConfig) check() error {
	switch {
	case c.listen == "-" && c.tlsListen == "":
		return errors.New("neither a plain nor a TLS address to listen on")
	case c.tlsCertOut != "" && c.tlsListen == "":
		return fmt.Errorf("a file for the certificate, %s, but no TLS address to listen on", c.tlsCertOut)
	}
	return nil
}

// prepare makes all but the listeners.
func (f *front) prepare(cfg *frontConfig, newPeer func(*amqp.Conn) amqp.Peer) (err error) {
	if err := cfg.check(); err != nil {
		return err
	}
	if f.keys, err = byName(cfg.keys); err != nil {
		return err
	}
	f.shown = Key{Name: devKeyName, Secret: devKey}
	if len(cfg.keys) > 0 { // the first key with all rights, or the first
		f.shown = cfg.keys[max(0, slices.IndexFunc(cfg.keys, func(k Key) bool { return k.Rights.has(Listen) && k.Rights.has(Send) }))]
	}
	if f.log = cfg.log; f.log == nil {
		f.log = slog.New(slog.DiscardHandler)
	}
	f.amqp = amqp.NewServer(newPeer, &amqp.Config{MaxMessageSize: cfg.maxMessage, IdleTimeout: cfg.idleTimeout, Log: f.log})
	return nil
}

func (f *front) listen(cfg *frontConfig) error {
	if cfg.listen != "-" {
		at := cfg.listen
		if at == "" {
			at = "127.0.0.1:0"
		}
		l, err := net.Listen("tcp", at)
		if err != nil {
			return err
		}
		f.plain = l
		f.accept(f.webSocket().Listener(l))
	}
	if cfg.tlsListen == "" {
		return nil
	}
	l, err := net.Listen("tcp", cfg.tlsListen)
	if err != nil {
		return err
	}
	f.secure = l
	if f.cert, err = newCertificate(l.Addr(), cfg.tlsListen, cfg.tlsCertOut); err != nil {
		l.Close()
		return err
	}
	f.accept(f.webSocket().Listener(tls.NewListener(l, f.cert.serverConfig())))
	return nil
}

// webSocket is where AMQP is spoken over WebSockets, on the same ports. The client libraries ask for a subprotocol of their own, the standard
// calls it amqp. Where there are no keys, the browser is all that keeps web pages from being clients.
func (f *front) webSocket() websocket.Endpoint {
	return websocket.Endpoint{Path: "/$servicebus/websocket", Protocols: []string{"AMQPWSB10", "amqp"}, AnyOrigin: len(f.keys) > 0}
}

func (f *front) accept(l net.Listener) {
	f.serve.Go(func() {
		if err := f.amqp.Serve(l); !errors.Is(err, amqp.ErrServerClosed) {
			f.log.Error("emulator stopped accepting connections", "error", err)
		}
	})
}

// hangUp disconnects the clients, and waits for all that has to do with them.
func (f *front) hangUp() {
	f.amqp.Close()
	f.serve.Wait()
}

// Addr is the address of the plain listener, "" if there is none.
func (f *front) Addr() string { return address(f.plain) }

// TLSAddr is the address of the TLS listener, "" if there is none.
func (f *front) TLSAddr() string { return address(f.secure) }

func address(l net.Listener) string {
	if l == nil {
		return ""
	}
	return l.Addr().String()
}

// ConnectionString is what clients of the plain listener connect with; where there is only a TLS listener, it is the same as
// TLSConnectionString.
func (f *front) ConnectionString() string {
	if f.plain == nil {
		return f.TLSConnectionString()
	}
	return "Endpoint=sb://" + endpoint(f.plain, "5672") + f.credentials() + ";UseDevelopmentEmulator=true"
}

// TLSConnectionString is what clients of the TLS listener connect with, "" if there is none. They must trust the certificate; where the port
// isn't 5671, some also need the server's name for its check, and the address as a custom endpoint.
func (f *front) TLSConnectionString() string {
	if f.secure == nil {
		return ""
	}
	return "Endpoint=sb://" + endpoint(f.secure, "5671") + f.credentials()
}

func (f *front) credentials() string {
	return ";SharedAccessKeyName=" + f.shown.Name + ";SharedAccessKey=" + f.shown.Secret
}

// endpoint is how clients of this machine reach a listener. The usual port needn't be named.
func endpoint(l net.Listener, usual string) string {
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

// CertPool holds the certificate of the TLS listener, nil if there is none.
func (f *front) CertPool() *x509.CertPool {
	if f.cert == nil {
		return nil
	}
	return f.cert.pool
}

// Faults are what goes wrong on demand.
func (f *front) Faults() *Faults { return &f.faults }

// DropConnections cuts all connections as a failing network would, and returns how many there were. Clients can connect again at once.
func (f *front) DropConnections() int { return f.amqp.Drop() }

// DetachLinks detaches the links that send to or receive from an entity (an event hub, queue, topic or subscription), or only those of one
// partition of a hub, as Azure does now and then, and returns how many there were. With partition "" it is all links of the entity, with
// entity "" all there are.
func (f *front) DetachLinks(entity, partition string) int { return f.links.detach(entity, partition) }
