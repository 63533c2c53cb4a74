package cosmosdb

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/sluice-go/sluice/internal/partitionkey"
)

// keyDefinition is a partition key definition in JSON.
type keyDefinition struct {
	Paths   []string   `json:"paths"`
	Kind    string     `json:"kind"`
	Version keyVersion `json:"version,omitempty"`
}

// keyVersion is the version of a partition key's hash: 1 or 2, in requests also "V1" or "V2".
type keyVersion int

func (v *keyVersion) UnmarshalJSON(text []byte) error {
	switch string(text) {
	case `"V1"`:
		*v = 1
	case `"V2"`:
		*v = 2
	default:
		return json.Unmarshal(text, (*int)(v))
	}
	return nil
}

// check sets defaults, and returns the parsed paths.
func (d *keyDefinition) check() ([]keyPath, error) {
	if d.Kind == "" {
		d.Kind = "Hash"
	}
	hierarchical := d.Kind == "MultiHash"
	switch {
	case !hierarchical && d.Kind != "Hash":
		return nil, fmt.Errorf("partition key of kind %.40q: must be Hash or MultiHash", d.Kind)
	case len(d.Paths) == 0 || len(d.Paths) > 3 || !hierarchical && len(d.Paths) > 1:
		return nil, errors.New("a partition key has one path, or up to three if its kind is MultiHash")
	case d.Version < 0 || d.Version > 2 || hierarchical && d.Version == 1:
		return nil, fmt.Errorf("partition key of version %d: must be 1 or 2, and 2 for MultiHash", d.Version)
	}
	if hierarchical {
		d.Version = 2
	}
	paths := make([]keyPath, len(d.Paths))
	for i, p := range d.Paths {
		var ok bool
		if paths[i], ok = parseKeyPath(p); !ok || slices.Contains(d.Paths[:i], p) {
			return nil, fmt.Errorf("partition key path %.40q: must be /name or /name/name, each once", p)
		}
	}
	return paths, nil
}

// containerSpec is the definition of a new container.
type containerSpec struct {
	id         string
	key        keyDefinition
	throughput int // 0: the account's
	partitions int // 0: the account's
	autoscale  *autoscale
	indexing   json.RawMessage
	ttl        json.RawMessage
	unique     uniqueKeyPolicy
}

// Container is a container of an account. It is safe for concurrent use.
type Container struct {
	account  *Account
	database *database
	id       string
	number   uint32
	rid      string
	prefix   [8]byte // of the resource ids in the container
	self     string
	key      keyDefinition
	paths    []keyPath
	hash     partitionkey.Definition

	version   atomic.Uint64 // the latest version of a document
	documents atomic.Uint64 // the latest number of a document
	indexed   atomic.Bool   // indexed values are charged

	defaultTTL atomic.Int32 // seconds, 0: documents never expire, -1: only those that say so
	unique     uniqueKeyPolicy
	uniqueKeys []uniqueKey

	pending atomic.Pointer[pendingThroughput]

	splitMu sync.Mutex // serializes splits and close; lock order: splitMu, partition.mu, mu

	mu         sync.RWMutex
	ranges     []*partition // in the order of their ranges
	generation uint64       // of the ranges: increases with every split
	spent      float64      // RU of partitions that have been split
	nextRange  int
	throughput int        // RU/s, 0 without limit
	autoscale  *autoscale // nil: the throughput is fixed
	indexing   json.RawMessage
	ttl        json.RawMessage
	etag       string
	seconds    int64
	closed     bool
}

func (a *Account) createContainer(db *database, spec containerSpec) (*Container, error) {
	if !validName(spec.id) {
		return nil, fmt.Errorf("container %.40q: a name has 1 to 255 characters without / \\ ? and #", spec.id)
	}
	paths, err := spec.key.check()
	if err != nil {
		return nil, err
	}
	ttl, err := parseDefaultTTL(spec.ttl)
	if err != nil {
		return nil, err
	}
	uniqueKeys, err := spec.unique.parse()
	if err != nil {
		return nil, err
	}
	if spec.throughput == 0 {
		spec.throughput = a.cfg.Throughput
	}
	if spec.partitions == 0 {
		spec.partitions = a.cfg.Partitions
	}
	if spec.partitions == 0 {
		spec.partitions = max(1, (spec.throughput+throughputPerPartition-1)/throughputPerPartition)
	}
	if spec.throughput < 0 || spec.partitions < 1 || spec.partitions > maxPartitions {
		return nil, fmt.Errorf("%d partitions and %d RU/s: must be 1 to %d partitions, and a throughput that is not negative", spec.partitions, spec.throughput, maxPartitions)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.databases[db.id] != db:
		return nil, fmt.Errorf("database %.40q was deleted", db.id)
	case db.containers[spec.id] != nil:
		return nil, errExists
	case len(db.containers) >= maxResources:
		return nil, fmt.Errorf("container %.40q: the database has %d, which is the maximum", spec.id, maxResources)
	}
	a.lastID++
	c := &Container{
		account: a, database: db, id: spec.id, number: a.lastID, prefix: containerPrefix(db.number, a.lastID),
		key: spec.key, paths: paths, hash: partitionkey.Definition{Hierarchical: spec.key.Kind == "MultiHash", Version: int(max(1, spec.key.Version))},
		generation: 1, throughput: spec.throughput, autoscale: spec.autoscale, indexing: withDefaultPaths(spec.indexing), ttl: spec.ttl, etag: a.nextEtag(), seconds: a.now().Unix(),
	}
	c.indexed.Store(isIndexed(c.indexing))
	c.defaultTTL.Store(ttl)
	c.unique, c.uniqueKeys = spec.unique, uniqueKeys
	c.rid = ridEncoding.EncodeToString(c.prefix[:])
	c.self = "dbs/" + db.rid + "/colls/" + c.rid + "/"
	for _, r := range c.hash.Divide(spec.partitions) {
		c.addRange(newPartition("", r, &arena{}, uniqueKeys))
	}
	c.shareThroughput()
	db.containers[c.id] = c
	return c, nil
}

// isIndexed reports whether documents are indexed under the policy, so that writes are
// charged for it.
func isIndexed(policy json.RawMessage) bool {
	var p struct {
		Mode string `json:"indexingMode"`
	}
	return json.Unmarshal(policy, &p) != nil || !strings.EqualFold(p.Mode, "none")
}

// addRange gives a partition its id and adds it. It is for the holder of the lock, as
// is share.
func (c *Container) addRange(p *partition) {
	p.id, p.generation = strconv.Itoa(c.nextRange), c.generation
	c.nextRange++
	c.ranges = append(c.ranges, p)
}

// shareThroughput divides the throughput equally among the physical partitions.
func (c *Container) shareThroughput() {
	now := c.account.now()
	for _, p := range c.ranges {
		p.budget.set(float64(c.throughput)/float64(len(c.ranges)), now)
	}
}

// SetThroughput sets the container's throughput in RU per second, effective at once; 0
// is no limit. The number of physical partitions doesn't change.
func (c *Container) SetThroughput(ru int) error {
	if ru < 0 {
		return fmt.Errorf("throughput of %d RU/s: must not be negative", ru)
	}
	c.setThroughput(ru, nil)
	return nil
}

func (c *Container) setThroughput(ru int, scale *autoscale) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.throughput, c.autoscale = ru, scale
	c.shareThroughput()
}

// Split splits a physical partition in two, as Azure does when one is full or gets more
// throughput than it can serve. Each gets half of the documents. From then on, requests
// for the old range are answered with 410 and substatus 1002. Requests for its
// documents wait for the split.
func (c *Container) Split(rangeID string) error {
	c.splitMu.Lock()
	defer c.splitMu.Unlock()
	list := c.partitions()
	i := slices.IndexFunc(list, func(p *partition) bool { return p.id == rangeID })
	switch {
	case i < 0:
		return fmt.Errorf("%.40q: %w", rangeID, ErrNoRange)
	case len(list) >= maxPartitions:
		return fmt.Errorf("the container has %d partitions, which is the maximum", maxPartitions)
	}
	old := list[i]
	old.mu.Lock()
	defer old.mu.Unlock()
	if old.gone {
		return ErrNoContainer
	}
	places := old.hashedDocuments(c.hash)
	middle, err := splitPoint(c.hash, old.bounds, places)
	if err != nil {
		return err
	}
	low := newPartition("", partitionkey.Range{Min: old.bounds.Min, Max: middle}, old.arena, c.uniqueKeys)
	high := newPartition("", partitionkey.Range{Min: middle, Max: old.bounds.Max}, old.arena, c.uniqueKeys)
	for _, pl := range places {
		to := low
		if partitionkey.Compare(pl.hash, middle) >= 0 {
			to = high
		}
		to.adopt(pl.ref)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.generation++
	c.ranges = slices.DeleteFunc(slices.Clone(c.ranges), func(p *partition) bool { return p == old })
	for _, p := range []*partition{low, high} {
		p.parents = append(slices.Clone(old.parents), old.id)
		c.addRange(p)
	}
	slices.SortFunc(c.ranges, func(x, y *partition) int { return partitionkey.Compare(x.bounds.Min, y.bounds.Min) })
	old.gone, old.index, old.order, old.unique = true, nil, documentOrder{}, nil
	c.spent += old.budget.totalSpent()
	c.shareThroughput()
	return nil
}

// adopt takes over a document of a partition that is being split. They share the
// record: the old partition must not be used any more.
func (p *partition) adopt(r ref) {
	rec := p.record(r)
	p.link(hashOf(rec.key(), rec.id()), r, rec)
	p.order.add(rec.number(), r)
	p.unique.add(rec)
	p.bytes += int64(rec.size())
}

// hashedDocument is a document and its effective partition key.
type hashedDocument struct {
	ref  ref
	hash string
}

// hashedDocuments returns all documents in their order. p.mu is held.
func (p *partition) hashedDocuments(d partitionkey.Definition) []hashedDocument {
	list := make([]hashedDocument, 0, p.order.live)
	last, lastHash := []byte(nil), ""
	p.order.each(0, func(r ref) bool {
		if key := p.record(r).key(); last == nil || string(key) != string(last) {
			values, _ := partitionkey.Parse(key) // package partitionkey has written it
			last, lastHash = key, d.Hash(values...)
		}
		list = append(list, hashedDocument{r, lastHash})
		return true
	})
	return list
}

// splitPoint returns where to split a range: so that half of the documents are on each
// side, or in the middle if all have the same key.
func splitPoint(d partitionkey.Definition, bounds partitionkey.Range, places []hashedDocument) (string, error) {
	hashes := make([]string, len(places))
	for i, pl := range places {
		hashes[i] = pl.hash
	}
	slices.Sort(hashes)
	for i, j := len(hashes)/2, len(hashes)/2; i > 0 || j < len(hashes); i, j = i-1, j+1 {
		if i > 0 && i < len(hashes) && hashes[i] > hashes[i-1] && partitionkey.Compare(hashes[i], bounds.Min) > 0 {
			return hashes[i], nil
		}
		if j > 0 && j < len(hashes) && hashes[j] > hashes[j-1] {
			return hashes[j], nil
		}
	}
	middle, ok := d.Middle(bounds)
	if !ok {
		return "", fmt.Errorf("partition key range %s to %s is too narrow to split", bounds.Min, bounds.Max)
	}
	return middle, nil
}

// find returns the partition of a range, or the failure that it was split.
func (c *Container) find(rangeID string) (*partition, *failure) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, p := range c.ranges {
		if p.id == rangeID {
			return p, nil
		}
	}
	return nil, failGone()
}

// route returns the partition whose range contains a hash.
func (c *Container) route(hash string) *partition {
	c.mu.RLock()
	defer c.mu.RUnlock()
	i := search(len(c.ranges), func(i int) bool { return partitionkey.Compare(c.ranges[i].bounds.Max, hash) > 0 })
	return c.ranges[min(i, len(c.ranges)-1)]
}

// partitions returns the partitions in the order of their ranges.
func (c *Container) partitions() []*partition {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return slices.Clone(c.ranges)
}

// close frees the memory. Requests in progress don't find documents any more.
func (c *Container) close() error {
	c.splitMu.Lock()
	defer c.splitMu.Unlock()
	if c.isClosed() {
		return nil
	}
	c.mu.Lock()
	c.closed = true
	list := slices.Clone(c.ranges)
	c.mu.Unlock()
	for _, p := range list {
		p.mu.Lock()
		p.gone, p.index, p.order, p.unique = true, nil, documentOrder{}, nil
		p.mu.Unlock()
	}
	var errs []error
	for _, p := range list {
		errs = append(errs, p.arena.close()) // partitions may share one; none uses it any more
	}
	return errors.Join(errs...)
}
