package cosmosdb

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// DevKey is the account key that Microsoft publishes for its own emulator. It is no secret.
const DevKey = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw=="

// Config holds the settings of an [Account]. The zero value works.
type Config struct {
	// Keys are the account keys, in base64. Default: [DevKey].
	Keys []string
	// Tokens are the accepted access tokens, as of Entra ID. They are compared as text.
	// Default: none.
	Tokens []string
	// Verify returns whose another access token is, for the host that the client calls, or why
	// it is refused. Default: no other is accepted.
	Verify func(token, host string) (Principal, error)
	// Throughput is that of containers without one of their own, in RU per second.
	// Default: no limit.
	Throughput int
	// Partitions is the initial number of physical partitions of containers without one
	// of their own. Default: one for each 10,000 RU per second, as on Azure.
	Partitions int
	// Log receives errors. Default: nothing is logged.
	Log *slog.Logger
	// OnWrite is called after every write and deletion of a document, in the order of
	// its partition. It blocks that partition and must not call the account. Writes of
	// a transactional batch that is rolled back are reported, too. Default: none.
	OnWrite func(Write)
	// AsAzure has the behaviours of accounts on Azure. Default: none.
	AsAzure AsAzure
	// Refuse returns why a request is refused before it is looked at, with status 403.
	// Default: none is.
	Refuse func(*http.Request) error
	// Wrap returns the handler of all requests, which leaves those for the account to the one
	// that it gets. Default: there are no others.
	Wrap func(http.Handler) http.Handler
	// Now is the clock. Default: time.Now.
	Now func() time.Time
}

// Write is a document that was written or deleted.
type Write struct {
	Database, Container string
	Range               string
	ID                  string
	Key                 string // in JSON: ["a"]
	Body                []byte // as it was sent, without the closing brace; only valid during the call; nil: deleted
	Replaced            bool   // the document existed before
}

// ContainerConfig describes a container.
type ContainerConfig struct {
	Database, Name string
	// Paths are the paths of the partition key: one, or two or three of a hierarchical
	// key.
	Paths []string
	// Version is the version of the partition key's hash, 1 or 2. Default 2.
	Version int
	// Throughput is in RU per second. Default: the account's.
	Throughput int
	// Partitions is the initial number of physical partitions. Default: the account's.
	Partitions int
}

// Account is an embedded Cosmos DB account. It is safe for concurrent use.
type Account struct {
	cfg    Config
	log    *slog.Logger
	now    func() time.Time
	keys   keyring
	faults Faults
	stats  stats

	mu          sync.RWMutex
	first       net.Addr // of the regions
	second      net.Addr // nil if there is one
	writeRegion int
	databases   map[string]*database
	lastID      uint32 // of databases and containers
	lastEtag    uint64
}

// Errors of an account's methods, to be checked with [errors.Is].
var (
	ErrNoContainer = errors.New("no such container")
	ErrNoRange     = errors.New("no such partition key range")
	errExists      = errors.New("resource with the specified id already exists")
)

const (
	maxPartitions          = 1024
	maxThroughput          = 1_000_000 // reported if there is no limit
	minThroughput          = 400
	throughputPerPartition = 10_000
	maxResources           = 10_000 // databases of an account, and containers of a database
)

// Open returns an account with the containers.
func Open(containers []ContainerConfig, cfg *Config) (*Account, error) {
	a := &Account{databases: make(map[string]*database)}
	if cfg != nil {
		a.cfg = *cfg
	}
	a.log, a.now = a.cfg.Log, a.cfg.Now
	if a.log == nil {
		a.log = slog.New(slog.DiscardHandler)
	}
	if a.now == nil {
		a.now = time.Now
	}
	if len(a.cfg.Keys) == 0 {
		a.cfg.Keys = []string{DevKey}
	}
	for i, k := range a.cfg.Keys {
		if err := a.keys.add(k); err != nil {
			return nil, fmt.Errorf("account key %d: %w", i+1, err)
		}
	}
	if a.cfg.Partitions < 0 || a.cfg.Partitions > maxPartitions || a.cfg.Throughput < 0 {
		return nil, fmt.Errorf("%d partitions and %d RU/s: must not be negative, and at most %d partitions", a.cfg.Partitions, a.cfg.Throughput, maxPartitions)
	}
	for _, c := range containers {
		if _, err := a.CreateContainer(c); err != nil {
			return nil, errors.Join(err, a.Close())
		}
	}
	return a, nil
}

// CreateContainer adds a container, and its database if that doesn't exist.
func (a *Account) CreateContainer(cfg ContainerConfig) (*Container, error) {
	def := keyDefinition{Paths: cfg.Paths, Version: keyVersion(cfg.Version), Kind: "Hash"}
	if def.Version == 0 {
		def.Version = 2
	}
	if len(def.Paths) > 1 {
		def.Kind = "MultiHash"
	}
	db, err := a.createDatabase(cfg.Database)
	if err != nil && !errors.Is(err, errExists) {
		return nil, fmt.Errorf("container %s/%s: %w", cfg.Database, cfg.Name, err)
	}
	c, err := a.createContainer(db, containerSpec{id: cfg.Name, key: def, throughput: cfg.Throughput, partitions: cfg.Partitions})
	if err != nil {
		return nil, fmt.Errorf("container %s/%s: %w", cfg.Database, cfg.Name, err)
	}
	return c, nil
}

// Container returns the container with the name in a database, or [ErrNoContainer].
func (a *Account) Container(database, name string) (*Container, error) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	if db := a.databases[database]; db != nil && db.containers[name] != nil {
		return db.containers[name], nil
	}
	return nil, fmt.Errorf("%s/%s: %w", database, name, ErrNoContainer)
}

// Faults returns the account's faults.
func (a *Account) Faults() *Faults { return &a.faults }

// Keys returns the account keys that are valid.
func (a *Account) Keys() []string { return a.keys.list() }

// RevokeKey makes the account refuse requests with the key, with 401, as after a key
// was regenerated.
func (a *Account) RevokeKey(key string) error { return a.keys.revoke(key) }

// RestoreKey makes the account accept the key, which may be a new one.
func (a *Account) RestoreKey(key string) error { return a.keys.add(key) }

// Close frees the memory of all documents. The account must not be used after it.
func (a *Account) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	var errs []error
	for _, db := range a.databases {
		for _, c := range db.containers {
			errs = append(errs, c.close())
		}
	}
	clear(a.databases)
	return errors.Join(errs...)
}

// database is a database of the account. Account.mu guards its containers.
type database struct {
	id         string
	number     uint32
	rid        string
	etag       string
	seconds    int64
	containers map[string]*Container
}

// validName reports whether id may name a database or container.
func validName(id string) bool {
	return id != "" && len(id) <= 255 && !strings.ContainsAny(id, "/\\?#\n\r\t") && !strings.HasSuffix(id, " ")
}

// createDatabase returns a new database; or the existing one, with errExists.
func (a *Account) createDatabase(id string) (*database, error) {
	if !validName(id) {
		return nil, fmt.Errorf("database %.40q: a name has 1 to 255 characters without / \\ ? and #", id)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if db := a.databases[id]; db != nil {
		return db, errExists
	}
	if len(a.databases) >= maxResources {
		return nil, fmt.Errorf("database %.40q: the account has %d, which is the maximum", id, maxResources)
	}
	a.lastID++
	db := &database{id: id, number: a.lastID, rid: databaseRID(a.lastID), etag: a.nextEtag(), seconds: a.now().Unix(), containers: make(map[string]*Container)}
	a.databases[id] = db
	return db, nil
}

func (a *Account) database(id string) *database {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.databases[id]
}

func (a *Account) deleteDatabase(id string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	db := a.databases[id]
	if db == nil {
		return false
	}
	delete(a.databases, id)
	for _, c := range db.containers {
		a.discard(c)
	}
	return true
}

func (a *Account) deleteContainer(db *database, id string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := db.containers[id]
	if c == nil {
		return false
	}
	delete(db.containers, id)
	a.discard(c)
	return true
}

func (a *Account) discard(c *Container) {
	if err := c.close(); err != nil {
		a.log.Error("cannot free memory of a deleted container", "error", err)
	}
}

// listDatabases and listContainers return lists in the order of creation.
func (a *Account) listDatabases() []*database {
	a.mu.RLock()
	defer a.mu.RUnlock()
	list := make([]*database, 0, len(a.databases))
	for _, db := range a.databases {
		list = append(list, db)
	}
	slices.SortFunc(list, func(x, y *database) int { return int(x.number) - int(y.number) })
	return list
}

func (a *Account) listContainers(db *database) []*Container {
	a.mu.RLock()
	defer a.mu.RUnlock()
	list := make([]*Container, 0, len(db.containers))
	for _, c := range db.containers {
		list = append(list, c)
	}
	slices.SortFunc(list, func(x, y *Container) int { return int(x.number) - int(y.number) })
	return list
}

// offers returns all containers, each of which has an offer.
func (a *Account) offers() []*Container {
	var list []*Container
	for _, db := range a.listDatabases() {
		list = append(list, a.listContainers(db)...)
	}
	return list
}

// nextEtag returns a new etag. a.mu is held.
func (a *Account) nextEtag() string {
	a.lastEtag++
	return etag(a.lastEtag, 0)
}
