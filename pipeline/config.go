package pipeline

import (
	"cmp"
	"maps"
	"regexp"
	"strconv"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/config/strictyaml"
)

// Limits of values in a file.
const (
	maxPartitions = 4096
	maxBatch      = 100_000
	maxAttempts   = 1000
	maxRetryLater = 32
	maxRetryWait  = 30 * 24 * time.Hour
	maxBody       = 64 << 20

	maxConnections  = 1000
	maxFill         = 24 * time.Hour
	minPrefetch     = 4 << 10
	defaultPrefetch = 4 << 20 // sluice.Config's
	maxPrefetch     = 1 << 30
	minRedrive      = 10 * time.Millisecond
	maxRedrive      = 24 * time.Hour
	minWatch        = 100 * time.Millisecond // of stall_after and silent_after
	maxWatch        = 24 * time.Hour
)

// reader reads a pipeline, and has what only reading needs.
type reader struct {
	*Pipeline
	stage    bool        // of a file with stages
	shared   connections // what all stages share, or else the source's: the defaults of source and target
	upstream string      // the hub or topic that a stage of another file reads, which feeds this one
	logs     severalLogs
	// matched has the topics of patterns, and clusters those that were read already, by their
	// places.
	matched  map[strictyaml.Place][]string
	clusters map[strictyaml.Place]*kafkaCluster
	// given has the keys that not every pipeline may have; nil: a key is not given.
	given struct {
		start, progressGroup, progressBlobs, outboxDelete, claimCheck, partitions, assign, memoryLimit, leases *strictyaml.Node
		deadLetters, copyTo, stampKey, oldStampKey, rateRU, throttled, fill                                    *strictyaml.Node
	}
	outside []*strictyaml.Node // the given keys that only targets outside a database have
}

// read reads a pipeline: the whole file, or a stage with the keys that all stages
// share.
func (r *reader) read(n strictyaml.Node, shared sharedKeys) {
	var database, leases, memory, target, routes, otherwise *strictyaml.Node
	keys := strictyaml.Keys{
		"source":        r.readSource,
		"partitions":    r.readPartitions,
		"lease":         r.readLease,
		"assign":        r.readAssign,
		"prefetch":      func(n strictyaml.Node) { n.SizeIn(&r.config.PrefetchBytes, minPrefetch, maxPrefetch) },
		"memory_limit":  r.readMemoryLimit,
		"stall_after":   func(n strictyaml.Node) { n.DurationIn(&r.config.StallAfter, minWatch, maxWatch) },
		"silent_after":  func(n strictyaml.Node) { n.DurationIn(&r.config.SilentAfter, minWatch, maxWatch) },
		"batch":         func(n strictyaml.Node) { n.Int(&r.config.MaxBatch, 1, maxBatch) },
		"fill":          r.readFill,
		"retry":         r.readRetry,
		"dead_letters":  r.readDeadLetters,
		"stamp_key":     func(n strictyaml.Node) { r.given.stampKey = &n; readStampKey(n, &r.stampKeys.current) },
		"old_stamp_key": func(n strictyaml.Node) { r.given.oldStampKey = &n; readStampKey(n, &r.stampKeys.old) },
		"database":      func(n strictyaml.Node) { database = &n; r.readDatabase(n) },
		"leases":        func(n strictyaml.Node) { leases = &n },
		"memory":        func(n strictyaml.Node) { memory = &n },
		"target":        func(n strictyaml.Node) { target = &n },
		"only":          r.routing.only.read,
		"routes":        func(n strictyaml.Node) { routes = &n },
		"otherwise":     func(n strictyaml.Node) { otherwise = &n },
		"tests":         r.readTests,
	}
	maps.Copy(keys, r.atLeastOnceKeys())
	required := []string{"source"}
	if !n.Has("routes") {
		required = append(required, "target")
	}
	if _, ok := shared["partitions"]; !ok {
		required = append(required, "partitions")
	}
	if shared == nil {
		keys["name"] = func(n strictyaml.Node) { n.Text(&r.Name) }
		keys["stages"] = nil // File.read has read it
	}
	n.Object(keys, required...)
	own := database
	inDatabase := target != nil && (target.Has("insert") || target.Has("statement"))
	switch {
	case leases != nil && inDatabase:
		r.readLeasesBeside(*leases)
	case leases != nil:
		keys["database"] = nil // the stage's leases replace it
		r.readLeases(*leases)
	}
	shared.fill(n, keys)
	r.checkAssign()
	if r.stampKeys.old != nil && r.stampKeys.current == nil {
		r.given.oldStampKey.Fail("goes with stamp_key, the key that replaces it")
	}
	r.checkMemoryLimit()
	if memory != nil {
		r.readRollup(*memory)
		if r.logs.node != nil {
			r.logs.node.Fail("goes with no memory: statistics are those of one topic or hub: write a stage for each")
		}
	}
	if r.given.copyTo != nil { // after source
		r.readCopyTo(*r.given.copyTo)
	}
	if r.readTargets(target, routes, otherwise) { // last, because they depend on the other keys
		r.checkKeys(n, own, memory)
		for _, m := range r.mappings() {
			m.raw = r.System == Kafka
		}
		r.nameTopic()
		r.checkTests()
	}
}

func (r *reader) readStart(n strictyaml.Node) {
	r.given.start = &n
	var text string
	if !n.Text(&text) {
		return
	}
	start, err := sluice.ParseStart(text)
	if err != nil {
		n.Fail(`%s: write earliest, latest, an RFC 3339 time, "24h ago", "sequence N" or "offset O"`, n.Shown())
		return
	}
	r.config.Start = start
}

func (r *reader) readPartitions(n strictyaml.Node) {
	r.given.partitions = &n
	if n.IsMapping() {
		r.readOrdinal(n)
		return
	}
	var text string
	if !n.Text(&text) {
		return
	}
	switch text {
	case "all":
		r.Partitions = sluice.AllPartitions
		return
	case "balanced":
		r.Partitions = sluice.Balanced
		return
	}
	count, err := strconv.Atoi(text)
	if err != nil || count < 1 || count > maxPartitions {
		n.Fail("%s: write all, balanced, a whole number from 1 to %d, or {ordinal: N, of: PROCESSES}", n.Shown(), maxPartitions)
		return
	}
	r.Partitions = sluice.Partitions(count)
}

// readOrdinal reads which of several processes this one is, whose partitions never change.
func (r *reader) readOrdinal(n strictyaml.Node) {
	c := &r.config
	ok := n.Object(strictyaml.Keys{
		"ordinal": func(n strictyaml.Node) { n.Int(&c.Ordinal, 0, maxPartitions) },
		"of":      func(n strictyaml.Node) { n.Int(&c.Replicas, 1, maxPartitions) },
	}, "ordinal", "of")
	if r.Partitions = sluice.AllPartitions; ok && c.Ordinal >= c.Replicas {
		n.Fail("ordinal %d of %d processes: the ordinals are those from 0 to %d", c.Ordinal, c.Replicas, c.Replicas-1)
	}
}

func (r *reader) readLease(n strictyaml.Node) {
	c := &r.config
	ok := n.Object(strictyaml.Keys{
		"for":   func(n strictyaml.Node) { n.Duration(&c.LeaseFor) },
		"renew": func(n strictyaml.Node) { n.Duration(&c.RenewEvery) },
	})
	lasts := r.LeaseFor()
	if ok && lasts < 3*c.RenewEvery {
		n.Fail("a lease of %v renewed every %v: it must last at least three renewals, so that one lost renewal does not lose it", lasts, c.RenewEvery)
	}
}

// readFill reads for how long a batch waits for further events, and until when.
func (r *reader) readFill(n strictyaml.Node) {
	r.given.fill = &n
	c := &r.config
	n.Object(strictyaml.Keys{
		"for": func(n strictyaml.Node) { n.DurationIn(&c.FillFor, time.Millisecond, maxFill) },
		"to":  func(n strictyaml.Node) { n.SizeIn(&c.FillTo, 1, maxPrefetch) },
	}, "for")
}

// checkFill refuses what a fill cannot be.
func (r *reader) checkFill() {
	switch c := &r.config; {
	case r.given.fill == nil:
	case r.AtLeastOnce() && !r.InBatches():
		r.given.fill.Fail("is for a target in a database, and for an http target with order: partition: remove it, this target collects its records as its batch says")
	case c.FillTo > cmp.Or(c.PrefetchBytes, defaultPrefetch):
		r.given.fill.Fail("to %d bytes: at most prefetch, which is %d", c.FillTo, cmp.Or(c.PrefetchBytes, defaultPrefetch))
	}
}

func (r *reader) readRetry(n strictyaml.Node) {
	c := &r.config
	ok := n.Object(strictyaml.Keys{
		"attempts": func(n strictyaml.Node) { n.Int(&c.Attempts, 1, maxAttempts) },
		"min":      func(n strictyaml.Node) { n.Duration(&c.RetryMin) },
		"max":      func(n strictyaml.Node) { n.Duration(&c.RetryMax) },
		"later":    r.readRetryLater,
	})
	least := cmp.Or(c.RetryMin, 100*time.Millisecond) // sluice.Config's default
	if ok && c.RetryMax > 0 && c.RetryMax < least {
		n.Fail("waits from %v to %v: min must not be above max", least, c.RetryMax)
	}
}

// readRetryLater reads the waits before further attempts at an event that was set aside.
func (r *reader) readRetryLater(n strictyaml.Node) {
	waits := []time.Duration{}
	var word string
	if !n.IsList() {
		if n.Text(&word) && word != "none" {
			n.Fail("%q: write none, or a list such as [10s, 1m, 10m]", word)
		}
		r.config.RetryLater = waits
		return
	}
	n.Items(maxRetryLater, func(item strictyaml.Node) {
		var wait time.Duration
		if item.DurationIn(&wait, time.Second, maxRetryWait) {
			waits = append(waits, wait)
		}
	})
	if len(waits) > 0 {
		r.config.RetryLater = waits
	}
}

func (r *reader) readDeadLetters(n strictyaml.Node) {
	store, limit := true, -1
	var hold bool
	r.given.deadLetters = &n
	n.Object(strictyaml.Keys{
		"store_bodies":  func(n strictyaml.Node) { n.Bool(&store) },
		"body_limit":    func(n strictyaml.Node) { n.Size(&limit, maxBody) },
		"redrive_every": func(n strictyaml.Node) { n.DurationIn(&r.config.RedriveEvery, minRedrive, maxRedrive) },
		"copy_to":       func(n strictyaml.Node) { r.given.copyTo = &n },
		"hold_keys": func(n strictyaml.Node) {
			r.outside = append(r.outside, &n)
			n.Bool(&hold)
		},
	})
	if hold {
		r.atLeastOnce.config.OnDeadLetter = sluice.KeyHold
	}
	switch {
	case !store || limit == 0:
		r.config.BodyLimit = -1
	case limit > 0:
		r.config.BodyLimit = limit
	}
}

// readDatabase reads a database's address, or a mapping of it and the settings of its connections.
func (r *reader) readDatabase(n strictyaml.Node) {
	r.places.database = n.Place()
	if !n.IsMapping() {
		r.readDatabaseURL(n)
		return
	}
	var connections *strictyaml.Node
	ok := n.Object(strictyaml.Keys{
		"url": r.readDatabaseURL,
		"connections": func(n strictyaml.Node) {
			connections = &n
			n.Int(&r.storage.connections, 1, maxConnections)
		},
	}, "url")
	if _, file := r.storage.database.(sqliteDatabase); ok && file && connections != nil {
		connections.Fail("is for the server of a database: remove it, SQLite has one connection that writes")
	}
}

func (r *reader) readDatabaseURL(n strictyaml.Node) {
	if db, ok := readSQLDatabase(n); ok {
		r.storage.database = db
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
