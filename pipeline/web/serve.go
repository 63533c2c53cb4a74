package web

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// Bounds of one server.
const (
	headerBytes  = 16 << 10
	bodyBytes    = 64 << 10
	readTimeout  = 10 * time.Second
	writeTimeout = 30 * time.Second
	idleTimeout  = 2 * time.Minute
	stopTimeout  = 5 * time.Second
)

// ErrNoToken is the error of listening at an address beyond loopback without a
// [Config].Token.
var ErrNoToken = errors.New("it can be reached from other machines, so it needs a token to sign in with")

// Server is a dashboard that listens.
type Server struct {
	dashboard   *Dashboard
	listener    net.Listener
	http        *http.Server
	host        string // of the URL
	fingerprint string
}

// Listen starts to listen at a TCP address, like "127.0.0.1:8443". For an address
// beyond loopback it needs a token, else it returns [ErrNoToken].
func (d *Dashboard) Listen(address string) (*Server, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("dashboard: %w", err)
	}
	s, err := d.server(l)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("dashboard at %s: %w", address, err), l.Close())
	}
	return s, nil
}

func (d *Dashboard) server(l net.Listener) (*Server, error) {
	at := l.Addr().(*net.TCPAddr)
	if !at.IP.IsLoopback() && !d.auth.required {
		return nil, ErrNoToken
	}
	s := &Server{dashboard: d, listener: &connections{Listener: l}, host: at.String()}
	if at.IP.IsUnspecified() {
		s.host = fmt.Sprintf("localhost:%d", at.Port)
	}
	if len(d.cfg.Hosts) > 0 {
		s.host = d.cfg.Hosts[0]
		if at.Port != 443 {
			s.host = fmt.Sprintf("%s:%d", s.host, at.Port)
		}
	}
	config, err := s.certificate(at.IP)
	if err != nil {
		return nil, err
	}
	config.MinVersion = tls.VersionTLS12
	config.NextProtos = append([]string{"h2", "http/1.1"}, config.NextProtos...)
	s.http = &http.Server{
		Handler: d, TLSConfig: config, MaxHeaderBytes: headerBytes,
		ReadHeaderTimeout: readTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
		ErrorLog: d.cfg.httpLog(), ConnContext: withConnection,
	}
	return s, nil
}

// certificate makes the TLS configuration: of Config.GetCertificate, of the given
// files, or of a self-signed certificate.
func (s *Server) certificate(at net.IP) (*tls.Config, error) {
	cfg := &s.dashboard.cfg
	var k *certSource
	switch {
	case cfg.GetCertificate != nil:
		return &tls.Config{GetCertificate: cfg.GetCertificate, NextProtos: cfg.Protocols}, nil
	case cfg.CertFile != "" || cfg.KeyFile != "":
		if cfg.CertFile == "" || cfg.KeyFile == "" {
			return nil, errors.New("a certificate needs its key: name both files")
		}
		k = certFromFiles(cfg.CertFile, cfg.KeyFile, cfg.Log)
	default:
		k = selfSignedCert(cfg.Dir, namesOf(at), cfg.Log)
	}
	c, err := k.get(nil)
	if err != nil {
		return nil, err
	}
	s.fingerprint = fingerprint(c)
	return &tls.Config{GetCertificate: k.get}, nil
}

// Addr returns the address that the server listens at.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// URL returns the dashboard's address for a browser.
func (s *Server) URL() string { return "https://" + s.host + "/" }

// Fingerprint returns the SHA-256 of the certificate, as browsers show it. It is
// empty with Config.GetCertificate.
func (s *Server) Fingerprint() string { return s.fingerprint }

// String returns the URL, and the beginning of the fingerprint if there is one.
func (s *Server) String() string {
	if s.fingerprint == "" {
		return s.URL()
	}
	return s.URL() + " (certificate SHA-256 " + s.fingerprint[:23] + "…)"
}

// Serve runs the dashboard and answers requests until ctx ends, which is no
// error.
func (s *Server) Serve(ctx context.Context) error {
	running, stop := context.WithCancel(ctx)
	defer stop()
	ran := make(chan struct{})
	first := !s.dashboard.running.Swap(true) // before a request, which else could be refused
	go func() {
		defer close(ran)
		if first {
			s.dashboard.run(running)
		}
	}()
	served := make(chan error, 1)
	go func() { served <- s.http.ServeTLS(s.listener, "", "") }()
	var err error
	select {
	case err = <-served:
	case <-ctx.Done():
		// Streams end with Run; other requests get a moment to finish.
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		if s.http.Shutdown(closing) != nil {
			_ = s.http.Close()
		}
		err = <-served
	}
	stop()
	<-ran
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("dashboard: %w", err)
}

// ListenAndServe listens at address and serves until ctx ends.
func (d *Dashboard) ListenAndServe(ctx context.Context, address string) error {
	s, err := d.Listen(address)
	if err != nil {
		return err
	}
	return s.Serve(ctx)
}
