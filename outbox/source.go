package outbox

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/clock"
)

// The defaults of [Config].
const (
	DefaultTable = "sluice_outbox"
	DefaultGroup = "sluice"
)

// Limits of [Config].
const (
	maxPartitions = 256
	maxBatch      = 10_000
)

// Config has the settings of an outbox. The zero value reads and writes a table that exists.
type Config struct {
	// Table is the name of the table, perhaps with its schema: letters, digits, _ and one dot. The
	// table of its partitions has this name with "_partitions" appended. Default: sluice_outbox.
	Table string
	// Partitions is how many partitions the table has; it never changes. 0: as many as it has, and
	// 1 where [Source.Create] creates it.
	Partitions int

	// ConsumerGroup and Namespace belong to the name under which checkpoints are stored. Default:
	// sluice, and the name of the database; of SQLite, the file's name.
	ConsumerGroup, Namespace string

	// PollMin and PollMax bound the wait between two looks at a table without new rows: it doubles
	// from the first to the second. Defaults: 20 ms and 500 ms.
	PollMin, PollMax time.Duration
	// Batch is how many rows one transaction numbers or deletes at most. Default: 1000.
	Batch int
	// Timeout bounds each request to the database, the wait for locks included. Default: 30 s.
	Timeout time.Duration
}

var tableName = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]{0,62}\.)?[A-Za-z_][A-Za-z0-9_]{0,47}$`)

func (cfg *Config) withDefaults() (Config, error) {
	var c Config
	if cfg != nil {
		c = *cfg
	}
	c.Table = cmp.Or(c.Table, DefaultTable)
	c.ConsumerGroup = cmp.Or(c.ConsumerGroup, DefaultGroup)
	c.PollMin = cmp.Or(c.PollMin, 20*time.Millisecond)
	c.PollMax = cmp.Or(c.PollMax, max(c.PollMin, 500*time.Millisecond))
	c.Batch = cmp.Or(c.Batch, 1000)
	c.Timeout = cmp.Or(c.Timeout, 30*time.Second)
	switch {
	case !tableName.MatchString(c.Table):
		return c, fmt.Errorf("outbox: table %q: write letters, digits and _, at most 48, perhaps after a schema and a dot", c.Table)
	case c.Partitions < 0 || c.Partitions > maxPartitions:
		return c, fmt.Errorf("outbox: %d partitions: must be from 1 to %d", c.Partitions, maxPartitions)
	case c.PollMin < 0 || c.PollMax < c.PollMin:
		return c, fmt.Errorf("outbox: polls every %v to %v: PollMin must be positive, and PollMax not below it", c.PollMin, c.PollMax)
	case c.Batch < 0 || c.Batch > maxBatch:
		return c, fmt.Errorf("outbox: batches of %d rows: must be from 1 to %d", c.Batch, maxBatch)
	case c.Timeout < 0:
		return c, fmt.Errorf("outbox: timeout of %v: must be positive", c.Timeout)
	}
	return c, nil
}

// Source is an outbox: a [driver.Source] for its consumers, with [Source.Add] for its writers. It
// is safe for concurrent use.
type Source struct {
	db      *sql.DB
	dialect Dialect
	sql     *statements
	cfg     Config
	clock   driver.Clock

	mu       sync.Mutex // held while the tables are checked
	topic    *driver.Topic
	deletion deletion

	beforeCommit func() // for tests: called in the transactions that number or delete rows
}

var _ driver.Source = (*Source)(nil)

// New returns the outbox of a database. It does not connect. The database stays the caller's to
// close. cfg may be nil.
func New(db *sql.DB, dialect Dialect, cfg *Config) (*Source, error) {
	c, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if db == nil {
		return nil, fmt.Errorf("outbox: no database: pass the *sql.DB that has the table %s", c.Table)
	}
	s, err := newStatements(dialect, c.Table)
	if err != nil {
		return nil, err
	}
	return &Source{db: db, dialect: dialect, sql: s, cfg: c, clock: clock.New()}, nil
}

// Group returns the name under which checkpoints are stored. Its namespace is empty if only the
// database knows it, see [Config].
func (s *Source) Group() driver.Group {
	return driver.Group{Namespace: s.cfg.Namespace, Topic: s.cfg.Table, Name: s.cfg.ConsumerGroup}
}

// Describe implements [driver.Source].
func (s *Source) Describe(ctx context.Context) (driver.Topic, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	topic, err := s.describe(ctx)
	return topic, s.failed(ctx, "describe", err)
}

func (s *Source) describe(ctx context.Context) (driver.Topic, error) {
	if _, err := s.prepared(ctx); err != nil {
		return driver.Topic{}, err
	}
	// Again, because the table may have been deleted and created again.
	return s.readTopic(ctx)
}

// Create creates the tables if they do not exist. [Schema] returns the statements.
func (s *Source) Create(ctx context.Context) error {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	err := s.sql.check(ctx, s.db)
	if err == nil {
		_, err = s.readTopic(ctx)
	}
	if errors.Is(err, errAbsent) {
		err = s.create(ctx)
	}
	if err == nil {
		_, err = s.prepared(ctx)
	}
	if err != nil && !errors.Is(err, driver.ErrRefused) && !strings.Contains(err.Error(), "database is closed") {
		err = fmt.Errorf("%w: check the rights of the user, and whether the dialect of the database is %s", err, s.dialect)
	}
	return s.failed(ctx, "create", err)
}

// prepared returns the topic as it was when the tables were checked, which happens once.
func (s *Source) prepared(ctx context.Context) (*driver.Topic, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.topic != nil {
		return s.topic, nil
	}
	if err := s.sql.check(ctx, s.db); err != nil {
		return nil, err
	}
	topic, err := s.readTopic(ctx)
	if err != nil {
		return nil, err
	}
	s.topic = &topic
	return s.topic, nil
}

// errAbsent means that the tables are missing, or the partitions' rows.
var errAbsent = fmt.Errorf("%w: the outbox is missing", driver.ErrRefused)

// readTopic reads the partitions.
func (s *Source) readTopic(ctx context.Context) (driver.Topic, error) {
	topic := driver.Topic{Group: s.Group()}
	rows, err := s.sql.describe.query(ctx, s.db, nil)
	if err != nil {
		if s.dialect.missing(err) {
			err = fmt.Errorf("%w: table %s_partitions does not exist: write create: true (in Go call Create), or correct the name: %w", errAbsent, s.cfg.Table, err)
		}
		return topic, err
	}
	defer rows.Close()
	for rows.Next() {
		var partition int
		var incarnation, database string
		if err := rows.Scan(&partition, &incarnation, &database); err != nil {
			return topic, err
		}
		if partition != len(topic.Partitions) {
			return topic, fmt.Errorf("%w: table %s_partitions has no row for partition %d: restore it, because the numbers of its events were there", driver.ErrRefused, s.cfg.Table, len(topic.Partitions))
		}
		if partition == 0 {
			topic.Incarnation = incarnation
			topic.Namespace = cmp.Or(topic.Namespace, filepath.Base(database))
		}
		topic.Partitions = append(topic.Partitions, strconv.Itoa(partition))
	}
	switch n := len(topic.Partitions); {
	case rows.Err() != nil:
		return topic, rows.Err()
	case n == 0:
		return topic, fmt.Errorf("%w: table %s_partitions is empty: restore it if the outbox was in use, else drop both tables and create them", errAbsent, s.cfg.Table)
	case s.cfg.Partitions > 0 && s.cfg.Partitions != n:
		return topic, fmt.Errorf("%w: table %s has %d partitions, and %d are configured: the number cannot change, because keys would move", driver.ErrRefused, s.cfg.Table, n, s.cfg.Partitions)
	}
	return topic, nil
}

// partition returns the number of a partition by its name.
func (s *Source) partition(ctx context.Context, name string) (int, error) {
	topic, err := s.prepared(ctx)
	if err != nil {
		return 0, err
	}
	p, err := strconv.Atoi(name)
	if err != nil || p < 0 || p >= len(topic.Partitions) || strconv.Itoa(p) != name {
		return 0, fmt.Errorf("%w: table %s has no partition %q", driver.ErrRefused, s.cfg.Table, name)
	}
	return p, nil
}

// bounded bounds a request.
func (s *Source) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, s.cfg.Timeout)
}

// failed says what failed in which table. Drivers report the end of a context in several ways; here
// it is always the context's error.
func (s *Source) failed(ctx context.Context, what string, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("outbox %s: %s: %w", s.cfg.Table, what, ctx.Err())
	}
	return fmt.Errorf("outbox %s: %s: %w", s.cfg.Table, what, err)
}

// Close implements the Close of other sources. The database stays open.
func (s *Source) Close(context.Context) error { return nil }
