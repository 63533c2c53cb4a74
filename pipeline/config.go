package pipeline

import (
	"cmp"
	"maps"
	"regexp"
	"strconv"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/strictyaml"
)

// Limits of values in a file.
const (
	maxPartitions = 4096
	maxBatch      = 100_000
	maxAttempts   = 1000
	maxBody       = 64 << 20

	maxConnections = 1000
	minPrefetch    = 4 << 10
	maxPrefetch    = 1 << 30
	minRedrive     = 10 * time.Millisecond
	maxRedrive     = 24 * time.Hour
	minWatch       = 100 * time.Millisecond // of stall_after and silent_after
	maxWatch       = 24 * time.Hour
)

// read reads a pipeline: the whole file, or a stage with the keys that all stages
// share.
func (p *Pipeline) read(n strictyaml.Node, shared sharedKeys) {
	var database, leases, memory, target, routes, otherwise *strictyaml.Node
	keys := strictyaml.Keys{
		"source":       p.readSource,
		"partitions":   p.readPartitions,
		"lease":        p.readLease,
		"assign":       p.readAssign,
		"prefetch":     func(n strictyaml.Node) { n.SizeIn(&p.config.PrefetchBytes, minPrefetch, maxPrefetch) },
		"memory_limit": p.readMemoryLimit,
		"stall_after":  func(n strictyaml.Node) { n.DurationIn(&p.config.StallAfter, minWatch, maxWatch) },
		"silent_after": func(n strictyaml.Node) { n.DurationIn(&p.config.SilentAfter, minWatch, maxWatch) },
		"batch":        func(n strictyaml.Node) { n.Int(&p.config.MaxBatch, 1, maxBatch) },
		"retry":        p.readRetry,
		"dead_letters": p.readDeadLetters,
		"stamp_key": func(n strictyaml.Node) {
			p.keyNodes.stampKey = &n
			readStampKey(n, &p.stampKey)
		},
		"old_stamp_key": func(n strictyaml.Node) {
			p.keyNodes.oldStampKey = &n
			readStampKey(n, &p.oldStampKey)
		},
		"database":  func(n strictyaml.Node) { database = &n; p.readDatabase(n) },
		"leases":    func(n strictyaml.Node) { leases = &n },
		"memory":    func(n strictyaml.Node) { memory = &n },
		"target":    func(n strictyaml.Node) { target = &n },
		"only":      p.only.read,
		"routes":    func(n strictyaml.Node) { routes = &n },
		"otherwise": func(n strictyaml.Node) { otherwise = &n },
	}
	maps.Copy(keys, p.atLeastOnce.keys(p))
	required := []string{"source"}
	if !n.Has("routes") {
		required = append(required, "target")
	}
	if _, ok := shared["partitions"]; !ok {
		required = append(required, "partitions")
	}
	if shared == nil {
		keys["name"] = func(n strictyaml.Node) { n.Text(&p.Name) }
		keys["stages"] = nil // File.read has read it
	}
	n.Object(keys, required...)
	own := database
	inDatabase := target != nil && (target.Has("insert") || target.Has("statement"))
	switch {
	case leases != nil && inDatabase:
		p.readLeasesBeside(*leases)
	case leases != nil:
		keys["database"] = nil // the stage's leases replace it
		p.readLeases(*leases)
	}
	shared.fill(n, keys)
	p.checkAssign()
	if p.oldStampKey != nil && p.stampKey == nil {
		p.keyNodes.oldStampKey.Fail("goes with stamp_key, the key that replaces it")
	}
	p.checkMemoryLimit()
	if memory != nil {
		p.readRollup(*memory)
	}
	if p.keyNodes.copyTo != nil { // after source
		p.readCopyTo(*p.keyNodes.copyTo)
	}
	if p.readTargets(target, routes, otherwise) { // last, because they depend on the other keys
		p.checkKeys(n, own, memory)
		for _, m := range p.mappings() {
			m.raw = p.System == Kafka
		}
	}
}

func (p *Pipeline) readStart(n strictyaml.Node) {
	p.keyNodes.start = &n
	var text string
	if !n.Text(&text) {
		return
	}
	start, err := sluice.ParseStart(text)
	if err != nil {
		n.Fail(`%s: write earliest, latest, an RFC 3339 time, "24h ago", "sequence N" or "offset O"`, n.Shown())
		return
	}
	p.config.Start = start
}

func (p *Pipeline) readPartitions(n strictyaml.Node) {
	p.keyNodes.partitions = &n
	var text string
	if !n.Text(&text) {
		return
	}
	switch text {
	case "all":
		p.Partitions = sluice.AllPartitions
		return
	case "balanced":
		p.Partitions = sluice.Balanced
		return
	}
	count, err := strconv.Atoi(text)
	if err != nil || count < 1 || count > maxPartitions {
		n.Fail("%s: write all, balanced, or a whole number from 1 to %d", n.Shown(), maxPartitions)
		return
	}
	p.Partitions = sluice.Partitions(count)
}

func (p *Pipeline) readLease(n strictyaml.Node) {
	c := &p.config
	ok := n.Object(strictyaml.Keys{
		"for":   func(n strictyaml.Node) { n.Duration(&c.LeaseFor) },
		"renew": func(n strictyaml.Node) { n.Duration(&c.RenewEvery) },
	})
	lasts := p.LeaseFor()
	if ok && lasts < 3*c.RenewEvery {
		n.Fail("a lease of %v renewed every %v: it must last at least three renewals, so that one lost renewal does not lose it", lasts, c.RenewEvery)
	}
}

func (p *Pipeline) readRetry(n strictyaml.Node) {
	c := &p.config
	ok := n.Object(strictyaml.Keys{
		"attempts": func(n strictyaml.Node) { n.Int(&c.Attempts, 1, maxAttempts) },
		"min":      func(n strictyaml.Node) { n.Duration(&c.RetryMin) },
		"max":      func(n strictyaml.Node) { n.Duration(&c.RetryMax) },
	})
	least := cmp.Or(c.RetryMin, 100*time.Millisecond) // sluice.Config's default
	if ok && c.RetryMax > 0 && c.RetryMax < least {
		n.Fail("waits from %v to %v: min must not be above max", least, c.RetryMax)
	}
}

func (p *Pipeline) readDeadLetters(n strictyaml.Node) {
	store, limit := true, -1
	var hold bool
	p.keyNodes.deadLetters = &n
	n.Object(strictyaml.Keys{
		"store_bodies":  func(n strictyaml.Node) { n.Bool(&store) },
		"body_limit":    func(n strictyaml.Node) { n.Size(&limit, maxBody) },
		"redrive_every": func(n strictyaml.Node) { n.DurationIn(&p.config.RedriveEvery, minRedrive, maxRedrive) },
		"copy_to":       func(n strictyaml.Node) { p.keyNodes.copyTo = &n },
		"hold_keys": func(n strictyaml.Node) {
			p.atLeastOnce.keysGiven = append(p.atLeastOnce.keysGiven, n)
			n.Bool(&hold)
		},
	})
	if hold {
		p.atLeastOnce.config.OnDeadLetter = sluice.KeyHold
	}
	switch {
	case !store || limit == 0:
		p.config.BodyLimit = -1
	case limit > 0:
		p.config.BodyLimit = limit
	}
}

// readDatabase reads a database's address, or a mapping of it and the settings of its connections.
func (p *Pipeline) readDatabase(n strictyaml.Node) {
	p.places.database = n.Place()
	if !n.IsMapping() {
		p.readDatabaseURL(n)
		return
	}
	var connections *strictyaml.Node
	ok := n.Object(strictyaml.Keys{
		"url": p.readDatabaseURL,
		"connections": func(n strictyaml.Node) {
			connections = &n
			n.Int(&p.connections, 1, maxConnections)
		},
	}, "url")
	if _, file := p.database.(sqliteDatabase); ok && file && connections != nil {
		connections.Fail("is for the server of a database: remove it, SQLite has one connection that writes")
	}
}

func (p *Pipeline) readDatabaseURL(n strictyaml.Node) {
	if db, ok := readSQLDatabase(n); ok {
		p.database = db
	}
}

// readSQLDatabase reads sqlite:PATH or the URL of a server's database.
func readSQLDatabase(n strictyaml.Node) (sqlDatabase, bool) {
	if holdsPassword(n.Literal()) {
		return nil, n.Fail("holds a password: put it into an environment variable and write ${DATABASE_URL}, or postgres://user:${PASSWORD}@host/database")
	}
	var text string
	if !n.Text(&text) {
		return nil, false
	}
	db, err := parseDatabase(text)
	if err != nil {
		return nil, n.Fail("%w", err)
	}
	return db, true
}

// Patterns of secrets in the file itself.
var (
	password = regexp.MustCompile(`(?i)://[^/@:]*:[^@]+@|[?&](?:ssl)?password=[^&]`)
	key      = regexp.MustCompile(`(?i)SharedAccess(?:Key|Signature)\s*=\s*[^;\s]`)
	emulated = regexp.MustCompile(`(?i)UseDevelopmentEmulator\s*=\s*true`)
)

func holdsPassword(literal string) bool { return password.MatchString(literal) }

// holdsKey reports whether a literal contains a key. Keys of emulators are no
// secrets.
func holdsKey(literal string) bool { return key.MatchString(literal) && !emulated.MatchString(literal) }
