package emulator

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"

	"github.com/sluice-go/sluice/emulator/internal/cosmosdb"
)

// CosmosContainer describes a container of documents.
type CosmosContainer struct {
	// Database and Name are up to 255 characters each.
	Database, Name string
	// KeyPaths is the partition key: one path such as "/key", or two or three of a hierarchical key.
	KeyPaths []string
	// KeyVersion is the version of the key's hash, 1 for containers as they were before 2019. Default 2.
	KeyVersion int
	// Throughput in RU per second, shared equally by the physical partitions. Default: that of the account.
	Throughput int
	// Partitions is the number of physical partitions. Default: that of the account.
	Partitions int
}

// CosmosConfig holds the settings of a [Cosmos]. The zero value works.
type CosmosConfig struct {
	// Listen is the address for HTTP. Default "127.0.0.1:0", a free port.
	Listen string
	// TLS has it serve HTTPS, with a certificate made at start. Default: plain HTTP, which the official clients accept.
	TLS bool
	// TLSCertOut is a file to which the certificate is written in PEM form, so that clients can trust it. Default: none.
	TLSCertOut string
	// Keys are the account keys, in base64. Default: the one that Microsoft publishes for its own emulator.
	Keys []string
	// Tokens are the access tokens that are accepted, as of Entra ID. Their text is what counts, not what is in them. Default: none.
	Tokens []string
	// Throughput is what containers get that state none of their own, in RU per second. Default: no limit.
	Throughput int
	// Partitions is the number of physical partitions that containers start with. Default: one for each 10,000 RU per second.
	Partitions int
	// Control is the address of an endpoint by which test programs have faults happen: plain HTTP, on loopback. Default: none.
	Control string
	// OnWrite learns of every document that was written or deleted, in the order of its physical partition. It holds up that partition, and must
	// not call the [Cosmos]. Default: none.
	OnWrite func(CosmosWrite)
	// Log receives failures. Default: nothing is logged.
	Log *slog.Logger
}

// Cosmos is an embedded Azure Cosmos DB account for the NoSQL API. The official client libraries work against it unmodified. Its documents are in
// memory, outside of the Go heap, and gone when it is closed. Its methods may be called concurrently.
//
//	srv, err := emulator.StartCosmos([]emulator.CosmosContainer{{Database: "db", Name: "docs", KeyPaths: []string{"/key"}}}, nil)
//	...
//	defer srv.Close()
//	client, err := azcosmos.NewClientFromConnectionString(srv.ConnectionString(), nil)
type Cosmos struct {
	cfg     CosmosConfig
	log     *slog.Logger
	account *cosmosdb.Account
	at      net.Listener
	cert    *certificate
	server  *cosmosdb.Server

	control *httpServer // nil if there is none
	close   sync.Once
	err     error // of Close
}

// StartCosmos makes the account with its containers, and listens. Clients can create more databases and containers.
func StartCosmos(containers []CosmosContainer, cfg *CosmosConfig) (*Cosmos, error) {
	s := &Cosmos{}
	if cfg != nil {
		s.cfg = *cfg
	}
	if s.cfg.Listen == "" {
		s.cfg.Listen = "127.0.0.1:0"
	}
	s.log = s.cfg.Log
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	configs := make([]cosmosdb.ContainerConfig, len(containers))
	for i, c := range containers {
		configs[i] = c.config()
	}
	var onWrite func(cosmosdb.Write)
	if f := s.cfg.OnWrite; f != nil {
		onWrite = func(w cosmosdb.Write) { f(CosmosWrite(w)) }
	}
	account, err := cosmosdb.Open(configs, &cosmosdb.Config{
		Keys: s.cfg.Keys, Tokens: s.cfg.Tokens, Throughput: s.cfg.Throughput, Partitions: s.cfg.Partitions, OnWrite: onWrite, Log: s.log,
	})
	if err != nil {
		return nil, fmt.Errorf("emulator: %w", err)
	}
	s.account = account
	if err := s.listen(); err != nil {
		return nil, fmt.Errorf("emulator: %w", errors.Join(err, s.Close()))
	}
	return s, nil
}

func (c *CosmosContainer) config() cosmosdb.ContainerConfig {
	return cosmosdb.ContainerConfig{
		Database: c.Database, Name: c.Name, Paths: c.KeyPaths, Version: c.KeyVersion, Throughput: c.Throughput, Partitions: c.Partitions,
	}
}

func (s *Cosmos) listen() error {
	l, err := net.Listen("tcp", s.cfg.Listen)
	if err != nil {
		return err
	}
	s.at = l
	if s.cfg.TLS {
		if s.cert, err = newCertificate(l.Addr(), s.cfg.Listen, s.cfg.TLSCertOut); err != nil {
			return errors.Join(err, l.Close())
		}
		l = tls.NewListener(l, s.cert.serverConfig())
	}
	s.server = s.account.Serve(l)
	s.control, err = startControl(s.cfg.Control, s.controlHandler(), s.log)
	return err
}

// Close lets requests in progress finish, for up to a second, disconnects the clients, gives the documents' memory back, and waits for all of it.
func (s *Cosmos) Close() error {
	s.close.Do(func() {
		err := s.control.close()
		if s.server != nil {
			err = errors.Join(err, s.server.Close())
		}
		s.err = errors.Join(err, s.account.Close())
	})
	return s.err
}

// Addr is the address that it listens at.
func (s *Cosmos) Addr() string { return address(s.at) }

// ControlAddr is the address of the control endpoint, "" if there is none.
func (s *Cosmos) ControlAddr() string { return s.control.addr() }

// Endpoint is the account's URL.
func (s *Cosmos) Endpoint() string {
	scheme := "http://"
	if s.cert != nil {
		scheme = "https://"
	}
	host, port, err := net.SplitHostPort(s.Addr())
	if err != nil {
		return scheme + s.Addr() + "/"
	}
	if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
		host = "localhost"
	}
	return scheme + net.JoinHostPort(host, port) + "/"
}

// Key is the first account key that it was started with.
func (s *Cosmos) Key() string {
	if len(s.cfg.Keys) > 0 {
		return s.cfg.Keys[0]
	}
	return cosmosdb.DevKey
}

// ConnectionString has the endpoint and the key.
func (s *Cosmos) ConnectionString() string {
	return "AccountEndpoint=" + s.Endpoint() + ";AccountKey=" + s.Key() + ";"
}

// CertPool holds the certificate, nil without TLS.
func (s *Cosmos) CertPool() *x509.CertPool {
	if s.cert == nil {
		return nil
	}
	return s.cert.pool
}

// CreateContainer adds a container, and its database where that is missing.
func (s *Cosmos) CreateContainer(c CosmosContainer) error {
	_, err := s.account.CreateContainer(c.config())
	return err
}

// Faults are what goes wrong on demand.
func (s *Cosmos) Faults() *CosmosFaults { return &CosmosFaults{s.account.Faults()} }

// Split divides a physical partition in two, as Azure does when one is full or gets more throughput than it can serve. Requests for the old partition
// key range are refused with 410 and substatus 1002 from then on. With rangeID "" it is the one that has the most documents.
func (s *Cosmos) Split(database, name, rangeID string) error {
	c, err := s.account.Container(database, name)
	if err != nil {
		return err
	}
	if rangeID == "" {
		rangeID = largest(c.Stats())
	}
	return c.Split(rangeID)
}

func largest(stats cosmosdb.ContainerStats) string {
	most := stats.Ranges[0]
	for _, r := range stats.Ranges {
		if r.Documents > most.Documents {
			most = r
		}
	}
	return most.ID
}

// SetThroughput changes a container's RU per second at once, 0 for no limit.
func (s *Cosmos) SetThroughput(database, name string, ru int) error {
	c, err := s.account.Container(database, name)
	if err != nil {
		return err
	}
	return c.SetThroughput(ru)
}

// RevokeKey has requests with an account key refused with 401.
func (s *Cosmos) RevokeKey(key string) error { return s.account.RevokeKey(key) }

// RestoreKey has an account key accepted, also one that the account never had.
func (s *Cosmos) RestoreKey(key string) error { return s.account.RestoreKey(key) }
