package pipeline

import "github.com/sluice-go/sluice/eventhub"

// Connections are the addresses and credentials of a pipeline, for tools that connect by
// themselves, such as a check of the services. They hold secrets: don't print them.
type Connections struct {
	// Hub is the source.
	Hub struct {
		Connection string // the connection string, or
		Host       string // of the namespace, with Entra ID's default credential
		Name       string // empty if the connection string names the hub
		Config     eventhub.Config
	}
	// Database is sqlite:PATH or the URL of a database, of checkpoints and perhaps of the target. It is
	// empty if Blob is set.
	Database string
	// Blob is the container of leases, checkpoints and dead letters; nil: there is none.
	Blob *BlobConnection
	// Cosmos is the target; nil: it is another.
	Cosmos *CosmosConnection
}

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
	c.Hub.Connection, c.Hub.Host, c.Hub.Name, c.Hub.Config = p.hub.connection, p.hub.host, p.hub.name, p.hub.config
	switch db := p.database.(type) {
	case sqlDatabase:
		c.Database = db.address()
	case blobContainer:
		c.Blob = &BlobConnection{db.where, db.connection, db.credential != "", db.prefix}
	}
	if t := p.cosmos; t != nil {
		c.Cosmos = &CosmosConnection{t.endpoint, t.database, t.container, t.key}
	}
	return c
}
