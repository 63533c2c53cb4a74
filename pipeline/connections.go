package pipeline

import (
	"cmp"
	"slices"

	"github.com/sluice-go/sluice/eventhub"
	"github.com/sluice-go/sluice/kafka"
	"github.com/sluice-go/sluice/webhook"
)

// Connections are the addresses and credentials of a pipeline, for tools that connect by
// themselves, such as a check of the services. They hold secrets: don't print them.
type Connections struct {
	// Hub is the source; nil: it is another.
	Hub *HubConnection
	// Kafka is the source; nil: it is another.
	Kafka *KafkaConnection
	// Outbox is the database of the source, as Database is written; empty: it is another.
	Outbox string
	// Database is sqlite:PATH or the URL of a database, of checkpoints and perhaps of the target.
	// It is empty if Blob has the checkpoints.
	Database string
	// Blob is the container of leases, checkpoints and dead letters, or beside Database of leases
	// alone; nil: there is none.
	Blob *BlobConnection
	// ProgressBlobs is the container into which checkpoints are mirrored; nil: there is none.
	ProgressBlobs *BlobConnection
	// Cosmos is the target, or that of the first route to Cosmos DB; nil: there is none.
	Cosmos *CosmosConnection
	// HTTP are the targets, and that of copies of dead letters, that are endpoints.
	HTTP []*HTTPConnection
}

// HTTPConnection is an endpoint.
type HTTPConnection struct {
	URL    string // which may hold a key
	Entra  bool   // a token of Entra ID's default credential is sent
	Config webhook.Config
	open   func(keys [][]byte) (*webhook.Sink, error)
}

// Open returns a sink of its own, which connects when it is first used. It signs with keys in place
// of those of the file. The caller closes it.
func (c *HTTPConnection) Open(keys [][]byte) (*webhook.Sink, error) { return c.open(keys) }

// HubConnection is an event hub.
type HubConnection struct {
	Connection string // the connection string, or
	Host       string // of the namespace, with Entra ID's default credential
	Name       string // empty if the connection string names the hub
	Config     eventhub.Config
}

// KafkaConnection is a topic of Kafka.
type KafkaConnection struct {
	Brokers         []string
	Topic           string
	ReadUncommitted bool
	ProgressGroup   string // the group of Kafka in which progress is published; empty: none
	Encrypted       bool   // TLS is used
	PlainPassword   bool   // SASL/PLAIN is used
	User            string // of SASL; empty: none
	Secrets         []string
	open            func() (*kafka.Client, error)
}

// Open returns a client of its own, which connects when it is first used. The caller closes it.
func (c *KafkaConnection) Open() (*kafka.Client, error) { return c.open() }

// BlobConnection is a container of Azure Blob Storage.
type BlobConnection struct {
	Container  string // its URL or name
	Connection string // the connection string of the storage account; empty: none
	Entra      bool   // Entra ID's default credential is used
	Prefix     string // of the names of blobs
}

// CosmosConnection is a container of Cosmos DB.
type CosmosConnection struct {
	Endpoint, Database, Container string
	Key                           string // empty: Entra ID's default credential is used
}

// Connections returns what the pipeline connects to. It does not connect.
func (p *Pipeline) Connections() Connections {
	var c Connections
	p.source.setConnections(&c)
	switch db := p.storage.database.(type) {
	case sqlDatabase:
		c.Database = db.address()
	case blobContainer:
		c.Blob = db.address()
	}
	if p.storage.leases != nil {
		c.Blob = p.storage.leases.address()
	}
	routes := p.routing.routes
	if p.copies != nil {
		routes = append(slices.Clone(routes), route{target: p.copies.target})
	}
	for _, r := range routes {
		switch t := r.target.(type) {
		case *cosmosTarget:
			c.Cosmos = cmp.Or(c.Cosmos, &CosmosConnection{t.endpoint, t.database, t.container, t.key})
		case *httpTarget:
			c.HTTP = append(c.HTTP, t.connection())
		}
	}
	return c
}
