package emulator

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"

	"github.com/sluice-go/sluice/emulator/internal/cosmosdb"
	"github.com/sluice-go/sluice/emulator/internal/webpage"
)

// CosmosContainer describes a container of documents.
type CosmosContainer struct {
	// Database and Name have up to 255 characters each.
	Database, Name string
	// KeyPaths is the partition key: one path such as "/key", or two or three of a
	// hierarchical key.
	KeyPaths []string
	// KeyVersion is the version of the partition key's hash: 1, as of containers
	// created before 2019, or 2. Default 2.
	KeyVersion int
	// Throughput is in RU per second, shared equally by the physical partitions.
	// Default: that of the account.
	Throughput int
	// Partitions is the initial number of physical partitions. Default: that of the
	// account.
	Partitions int
}

// CosmosConfig holds the settings of a [Cosmos]. The zero value works.
type CosmosConfig struct {
	// Listen is the address to listen on. Default "127.0.0.1:0", a free port.
	Listen string
	// TLS makes it serve HTTPS, with a self-signed certificate made on start. Default:
	// plain HTTP, which the official clients accept.
	TLS bool
	// TLSCertOut is a file to which the certificate is written in PEM format, so that
	// clients can trust it. Default: none.
	TLSCertOut string
	// Keys are the account keys, in base64. Default: the one that Microsoft publishes
	// for its own emulator.
	Keys []string
	// Tokens are the accepted access tokens, as of Entra ID. They are compared as text;
	// their content isn't checked. Default: none.
	Tokens []string
	// Issuer is whose access tokens are accepted, as those of Entra ID on Azure, with the
	// rights of their principals. An address with TLS then serves the issuer's requests, too.
	// Default: none.
	Issuer *Issuer
	// Throughput is that of containers without one of their own, in RU per second.
	// Default: no limit.
	Throughput int
	// Partitions is the initial number of physical partitions of containers without one
	// of their own. Default: one for each 10,000 RU per second.
	Partitions int
	// AsAzure makes the account as strict and inexact as one on Azure. Default: nil, nothing
	// of that.
	AsAzure *AsAzure
	// Control is the loopback address of the control endpoint, plain HTTP: see the
	// package documentation. Default: none.
	Control string
	// OnWrite is called after every write and deletion of a document, in the order of
	// its physical partition. It blocks that partition and must not call methods of the
	// [Cosmos]. Writes of a transactional batch that is rolled back are reported, too.
	// Default: none.
	OnWrite func(CosmosWrite)
	// Log receives errors. Default: nothing is logged.
	Log *slog.Logger
}

// Cosmos is an embedded Azure Cosmos DB account for the NoSQL API. Documents are in
// memory, outside of the Go heap, and are gone after Close. Operations are charged in
// request units (RU); those above a container's throughput are answered with 429. It is
// safe for concurrent use.
//
//	srv, err := emulator.StartCosmos([]emulator.CosmosContainer{{Database: "db", Name: "docs", KeyPaths: []string{"/key"}}}, nil)
//	...
//	defer srv.Close()
//	client, err := azcosmos.NewClientFromConnectionString(srv.ConnectionString(), nil)
type Cosmos struct {
	cfg      CosmosConfig
	log      *slog.Logger
	account  *cosmosdb.Account
	listener net.Listener
	cert     *certificate
	server   *cosmosdb.Server
	second   *cosmosRegion // nil if the account has one region

	control *httpServer // nil if there is none
	close   sync.Once
	err     error // of Close
}

// StartCosmos starts an account with the containers. Clients can create more databases
// and containers. A nil cfg stands for the defaults. It returns an error if a setting
// is invalid or an address can't be listened on.
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
	s.cfg.AsAzure = s.cfg.AsAzure.orDefault()
	var refuse func(*http.Request) error
	if len(s.cfg.Keys) == 0 { // every web page knows the published key
		refuse = webpage.Check
	}
	own := &cosmosdb.Config{
		Refuse: refuse, Keys: s.cfg.Keys, Tokens: s.cfg.Tokens, Throughput: s.cfg.Throughput, Partitions: s.cfg.Partitions, OnWrite: onWrite, Log: s.log, AsAzure: cosmosdb.AsAzure(s.cfg.AsAzure.Cosmos),
	}
	if issuer := s.cfg.Issuer; issuer != nil {
		own.Verify = issuer.verifyCosmos
		if s.cfg.TLS {
			own.Wrap = issuer.wrap
		}
	}
	account, err := cosmosdb.Open(configs, own)
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
	l, err := listen(s.cfg.Listen)
	if err != nil {
		return err
	}
	s.listener = l
	if len(s.cfg.Keys) == 0 {
		warnOpen(s.log, "Cosmos DB", l.Addr())
	}
	if s.cfg.TLS {
		if s.cert, err = newCertificate(l.Addr(), s.cfg.Listen, s.cfg.TLSCertOut); err != nil {
			return errors.Join(err, l.Close())
		}
		l = tls.NewListener(l, s.cert.serverConfig())
	}
	s.server = s.account.Serve(l)
	if s.cfg.AsAzure.Cosmos.TwoRegions {
		if err := s.listenSecond(); err != nil {
			return err
		}
	}
	s.control, err = startControl(s.cfg.Control, s.controlHandler(), s.log)
	return err
}

// Close waits up to a second for requests in progress, disconnects the clients and
// frees the documents' memory. Later calls return the result of the first.
func (s *Cosmos) Close() error {
	s.close.Do(func() {
		err := s.control.close()
		if s.server != nil {
			err = errors.Join(err, s.server.Close())
		}
		if s.second != nil {
			err = errors.Join(err, s.second.server.Close())
		}
		s.err = errors.Join(err, s.account.Close())
	})
	return s.err
}

// Addr returns the address that the account listens on.
func (s *Cosmos) Addr() string { return address(s.listener) }

// ControlAddr returns the address of the control endpoint, "" if there is none.
func (s *Cosmos) ControlAddr() string { return s.control.addr() }

// Endpoint returns the account's URL, which is that of its first region.
func (s *Cosmos) Endpoint() string { return s.endpoint(s.Addr()) }

func (s *Cosmos) endpoint(addr string) string {
	scheme := "http://"
	if s.cert != nil {
		scheme = "https://"
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return scheme + addr + "/"
	}
	if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
		host = "localhost"
	}
	return scheme + net.JoinHostPort(host, port) + "/"
}

// Key returns the first account key of the configuration.
func (s *Cosmos) Key() string {
	if len(s.cfg.Keys) > 0 {
		return s.cfg.Keys[0]
	}
	return cosmosdb.DevKey
}

// ConnectionString returns a connection string with [Cosmos.Endpoint] and [Cosmos.Key].
func (s *Cosmos) ConnectionString() string {
	return "AccountEndpoint=" + s.Endpoint() + ";AccountKey=" + s.Key() + ";"
}

// CertPool returns a pool with the account's certificate; nil without TLS.
func (s *Cosmos) CertPool() *x509.CertPool {
	if s.cert == nil {
		return nil
	}
	return s.cert.pool
}

// CreateContainer adds a container, and its database if that doesn't exist. It returns
// an error if the container exists.
func (s *Cosmos) CreateContainer(c CosmosContainer) error {
	_, err := s.account.CreateContainer(c.config())
	return err
}

// Faults returns the account's faults, to add and remove them.
func (s *Cosmos) Faults() *CosmosFaults { return &CosmosFaults{s.account.Faults()} }

// Split splits a physical partition in two, as Azure does when one is full or gets more
// throughput than it can serve. From then on, requests for the old partition key range
// are answered with 410 and substatus 1002. An empty rangeID stands for the range with
// the most documents. It returns an error if there is no such container or range, or
// the range is too narrow to split.
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

// SetThroughput sets a container's throughput in RU per second, effective at once; 0 is
// no limit. It returns an error if there is no such container or ru is negative.
func (s *Cosmos) SetThroughput(database, name string, ru int) error {
	c, err := s.account.Container(database, name)
	if err != nil {
		return err
	}
	return c.SetThroughput(ru)
}

// RevokeKey makes the account refuse requests with the account key, with 401. It
// returns an error if there is no such key.
func (s *Cosmos) RevokeKey(key string) error { return s.account.RevokeKey(key) }

// RestoreKey makes the account accept an account key, which may be a new one. It
// returns an error unless the key is base64.
func (s *Cosmos) RestoreKey(key string) error { return s.account.RestoreKey(key) }
