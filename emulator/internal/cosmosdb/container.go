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

	"github.com/sluice-go/sluice/internal/epk"
)

// keyDefinition is a partition key definition in JSON.
type keyDefinition struct {
	Paths   []string `json:"paths"`
	Kind    string   `json:"kind"`
	Version int      `json:"version,omitempty"`
}

// check fills in defaults, and returns the paths.
func (d *keyDefinition) check() ([]keyPath, error) {
	if d.Kind == "" {
		d.Kind = "Hash"
	}
	hierarchical := d.Kind == "MultiHash"
	switch {
	case !hierarchical && d.Kind != "Hash":
		return nil, fmt.Errorf("partition key of kind %.40q: choose Hash or MultiHash", d.Kind)
	case len(d.Paths) == 0 || len(d.Paths) > 3 || !hierarchical && len(d.Paths) > 1:
		return nil, errors.New("a partition key has one path, or as MultiHash up to three")
	case d.Version < 0 || d.Version > 2 || hierarchical && d.Version == 1:
		return nil, fmt.Errorf("partition key of version %d: choose 1 or 2, and 2 for MultiHash", d.Version)
	}
	if hierarchical {
		d.Version = 2
	}
	paths := make([]keyPath, len(d.Paths))
	for i, p := range d.Paths {
		var ok bool
		if paths[i], ok = parseKeyPath(p); !ok || slices.Contains(d.Paths[:i], p) {
			return nil, fmt.Errorf("partition key path %.40q: write /name or /name/name, each once", p)
		}
	}
	return paths, nil
}

// containerSpec is what a container is made of.
type containerSpec struct {
	id         string
	key        keyDefinition
	throughput int // 0: the account's
	partitions int // 0: the account's
	indexing   json.RawMessage
	ttl        json.RawMessage
}

// Container is a container of an account. Its methods may be called concurrently.
type Container struct {
	account  *Account
	database *database
	id       string
	number   uint32
	rid      string
	prefix   [8]byte // of resource ids
	self     string
	key      keyDefinition
	paths    []keyPath
	hash     epk.Definition

	version   atomic.Uint64 // the last of its documents'
	documents atomic.Uint64 // the last number of a document
	indexed   atomic.Bool   // values cost more

	reshape sync.Mutex // of splits and the end; it is locked before a partition's lock, and that before mu

	mu         sync.RWMutex
	ranges     []*partition // in order
	generation uint64       // of the ranges
	spent      float64      // RU of partitions that were split
	nextRange  int
	throughput int // RU/s, 0 without limit
	indexing   json.RawMessage
	ttl        json.RawMessage
	etag       string
	seconds    int64
	closed     bool
}

func (a *Account) createContainer(db *database, spec containerSpec) (*Container, error) {
	if !validName(spec.id) {
		return nil, fmt.Errorf("container %.40q: a name is up to 255 characters without / \\ ? and #", spec.id)
	}
	paths, err := spec.key.check()
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
		spec.partitions = max(1, (spec.throughput+perPartition-1)/perPartition)
	}
	if spec.throughput < 0 || spec.partitions < 1 || spec.partitions > maxPartitions {
		return nil, fmt.Errorf("%d partitions and %d RU/s: choose 1 to %d partitions, and no negative number", spec.partitions, spec.throughput, maxPartitions)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.databases[db.id] != db:
		return nil, fmt.Errorf("database %.40q was deleted", db.id)
	case db.containers[spec.id] != nil:
		return nil, errExists
	case len(db.containers) >= maxResources:
		return nil, fmt.Errorf("container %.40q: there are %d already", spec.id, maxResources)
	}
	a.lastID++
	c := &Container{
		account: a, database: db, id: spec.id, number: a.lastID, prefix: containerPrefix(db.number, a.lastID),
		key: spec.key, paths: paths, hash: epk.Definition{Hierarchical: spec.key.Kind == "MultiHash", Version: max(1, spec.key.Version)},
		generation: 1, throughput: spec.throughput, indexing: spec.indexing, ttl: spec.ttl, etag: a.nextEtag(), seconds: a.now().Unix(),
	}
	c.indexed.Store(indexes(c.indexing))
	c.rid = ridEncoding.EncodeToString(c.prefix[:])
	c.self = "dbs/" + db.rid + "/colls/" + c.rid + "/"
	for _, r := range c.hash.Divide(spec.partitions) {
		c.addRange(newPartition("", r, &heap{}))
	}
	c.share()
	db.containers[c.id] = c
	return c, nil
}

// indexes tells whether a policy has documents indexed, which is what writes cost more for.
func indexes(policy json.RawMessage) bool {
	var p struct {
		Mode string `json:"indexingMode"`
	}
	return json.Unmarshal(policy, &p) != nil || !strings.EqualFold(p.Mode, "none")
}

// addRange gives a partition its id. It is for the holder of the lock, as is share.
func (c *Container) addRange(p *partition) {
	p.id, p.born = strconv.Itoa(c.nextRange), c.generation
	c.nextRange++
	c.ranges = append(c.ranges, p)
}

// share divides the throughput equally over the physical partitions.
func (c *Container) share() {
	now := c.account.now()
	for _, p := range c.ranges {
		p.budget.set(float64(c.throughput)/float64(len(c.ranges)), now)
	}
}

// SetThroughput changes the container's RU per second at once, 0 for no limit. The number of physical partitions stays.
func (c *Container) SetThroughput(ru int) error {
	if ru < 0 {
		return fmt.Errorf("a throughput of %d RU/s: choose no negative number", ru)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.throughput = ru
	c.share()
	return nil
}

// Split divides a physical partition in two, as Azure does when one is full or gets more throughput than it can serve: half of its documents go to
// each. Requests for the old range are answered with 410 and substatus 1002 from then on. Meanwhile those for its documents wait.
func (c *Container) Split(rangeID string) error {
	c.reshape.Lock()
	defer c.reshape.Unlock()
	list := c.live()
	i := slices.IndexFunc(list, func(p *partition) bool { return p.id == rangeID })
	switch {
	case i < 0:
		return fmt.Errorf("%.40q: %w", rangeID, ErrNoRange)
	case len(list) >= maxPartitions:
		return fmt.Errorf("there are %d partitions already", maxPartitions)
	}
	old := list[i]
	old.mu.Lock()
	defer old.mu.Unlock()
	if old.gone {
		return ErrNoContainer
	}
	places := old.hashes(c.hash)
	middle, err := median(c.hash, old.bounds, places)
	if err != nil {
		return err
	}
	low := newPartition("", epk.Range{Min: old.bounds.Min, Max: middle}, old.heap)
	high := newPartition("", epk.Range{Min: middle, Max: old.bounds.Max}, old.heap)
	for _, pl := range places {
		to := low
		if epk.Compare(pl.hash, middle) >= 0 {
			to = high
		}
		to.adopt(pl.at)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.generation++
	c.ranges = slices.DeleteFunc(slices.Clone(c.ranges), func(p *partition) bool { return p == old })
	for _, p := range []*partition{low, high} {
		p.parents = append(slices.Clone(old.parents), old.id)
		c.addRange(p)
	}
	slices.SortFunc(c.ranges, func(x, y *partition) int { return epk.Compare(x.bounds.Min, y.bounds.Min) })
	old.gone, old.index, old.order = true, nil, order{}
	c.spent += old.budget.total()
	c.share()
	return nil
}

// adopt takes over a document of a partition that is being split. The records are the same ones: nobody may use the old partition any more.
func (p *partition) adopt(r ref) {
	rec := p.at(r)
	p.link(hashOf(rec.key(), rec.id()), r, rec)
	p.order.add(rec.number(), r)
	p.bytes += int64(rec.size())
}

// hashed is a document and the place of its key.
type hashed struct {
	at   ref
	hash string
}

// hashes are those of all documents, in their order. The caller holds the lock.
func (p *partition) hashes(d epk.Definition) []hashed {
	list := make([]hashed, 0, p.order.live)
	last, lastHash := []byte(nil), ""
	p.order.each(0, func(r ref) bool {
		if key := p.at(r).key(); last == nil || string(key) != string(last) {
			values, _ := epk.Parse(key) // it was written by epk
			last, lastHash = key, d.Hash(values...)
		}
		list = append(list, hashed{r, lastHash})
		return true
	})
	return list
}

// median is where to cut a range: so that half of the documents are on each side, or in the middle of the range if they are all of one key.
func median(d epk.Definition, bounds epk.Range, places []hashed) (string, error) {
	hashes := make([]string, len(places))
	for i, pl := range places {
		hashes[i] = pl.hash
	}
	slices.Sort(hashes)
	for i, j := len(hashes)/2, len(hashes)/2; i > 0 || j < len(hashes); i, j = i-1, j+1 {
		if i > 0 && i < len(hashes) && hashes[i] > hashes[i-1] && epk.Compare(hashes[i], bounds.Min) > 0 {
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

// find returns the partition of a range. Of one that is split the error says so.
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

// route returns the partition that a hash belongs to.
func (c *Container) route(hash string) *partition {
	c.mu.RLock()
	defer c.mu.RUnlock()
	i := search(len(c.ranges), func(i int) bool { return epk.Compare(c.ranges[i].bounds.Max, hash) > 0 })
	return c.ranges[min(i, len(c.ranges)-1)]
}

// live are the partitions in order.
func (c *Container) live() []*partition {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return slices.Clone(c.ranges)
}

// close gives the memory back; requests that are under way find nothing any more.
func (c *Container) close() error {
	c.reshape.Lock()
	defer c.reshape.Unlock()
	if c.isClosed() {
		return nil
	}
	c.mu.Lock()
	c.closed = true
	list := slices.Clone(c.ranges)
	c.mu.Unlock()
	for _, p := range list {
		p.mu.Lock()
		p.gone, p.index, p.order = true, nil, order{}
		p.mu.Unlock()
	}
	var errs []error
	for _, p := range list {
		errs = append(errs, p.heap.close()) // partitions may share one: the first closes it, after all have let go
	}
	return errors.Join(errs...)
}
