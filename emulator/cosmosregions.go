package emulator

import (
	"crypto/tls"
	"errors"
	"net"

	"github.com/sluice-go/sluice/emulator/internal/cosmosdb"
)

// CosmosRegion is a region of a [Cosmos].
type CosmosRegion struct {
	Name     string `json:"name"` // as clients list it in their preferred regions
	Endpoint string `json:"endpoint"`
	Writes   bool   `json:"writes"` // the region takes writes
}

// cosmosRegion is the second region's server.
type cosmosRegion struct {
	listener net.Listener
	server   *cosmosdb.Server
}

// listenSecond serves the account's second region on a free port of the same host.
func (s *Cosmos) listenSecond() error {
	host, _, err := net.SplitHostPort(s.Addr())
	if err != nil {
		return err
	}
	at, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return err
	}
	l := at
	if s.cert != nil {
		l = tls.NewListener(at, s.cert.serverConfig())
	}
	s.second = &cosmosRegion{at, s.account.ServeRegion(l)}
	return nil
}

// Regions returns the account's regions: one, unless [CosmosAsAzure] gives it two.
func (s *Cosmos) Regions() []CosmosRegion {
	names, writes := s.account.Regions(), s.account.WriteRegion()
	list := []CosmosRegion{{Name: names[0], Endpoint: s.Endpoint(), Writes: writes == 0}}
	if s.second != nil {
		list = append(list, CosmosRegion{Name: names[1], Endpoint: s.endpoint(address(s.second.listener)), Writes: writes == 1})
	}
	return list
}

// Failover makes the other region take the writes. It returns an error if the account has
// one region.
func (s *Cosmos) Failover() error {
	if s.second == nil {
		return errors.New("the account has one region: give it a second one (CosmosAsAzure.TwoRegions, --as-azure cosmos-two-regions)")
	}
	return s.account.Failover()
}
