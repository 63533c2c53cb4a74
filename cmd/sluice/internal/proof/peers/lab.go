//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sluice-go/sluice/cmd/sluice/internal/proof/measure"
	"github.com/sluice-go/sluice/internal/proof/kafkatest"
	"github.com/sluice-go/sluice/internal/proof/pgtest"
)

const partitions = 4

// lab is a broker, a database server and the peers.
type lab struct {
	options
	broker   *kafkatest.Cluster
	postgres *pgtest.Server
	dir      string // for what the peers write
	peers    []*peer
	runs     int
	planned  int // how many runs there are to be
	began    time.Time
	report   *report
}

// newLab starts the servers. The database has every commit on disk, and the files of
// its write-ahead log as later runs find them.
func newLab(ctx context.Context, o options) (*lab, error) {
	l := &lab{options: o, report: newReport()}
	if err := l.start(ctx, o); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

func (l *lab) start(ctx context.Context, o options) (err error) {
	if o.programs, err = filepath.Abs(o.programs); err != nil {
		return err
	}
	l.peers = allPeers(o)
	if len(l.peers) == 0 {
		return fmt.Errorf("no peer's name matches %q", o.only)
	}
	for _, p := range l.peers {
		if err := p.installed(); err != nil {
			return err
		}
	}
	if l.dir, err = os.MkdirTemp("", "sluice-peers-"); err != nil {
		return err
	}
	if l.broker, err = kafkatest.Start(&kafkatest.Config{Java: []string{"-Xms1g", "-Xmx1g", "-XX:TieredStopAtLevel=4"}}); err != nil {
		return err
	}
	l.postgres, err = pgtest.Start(&pgtest.Config{Durable: true, Settings: []string{
		"min_wal_size = '2GB'", "max_wal_size = '4GB'", "track_commit_timestamp = on",
	}})
	if err != nil {
		return err
	}
	return l.warm(ctx)
}

// warm writes more than a run does, so that the first one finds the files of the log too.
func (l *lab) warm(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, l.postgres.URL("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	if err := conn.QueryRow(ctx, "SELECT current_setting('server_version')").Scan(&l.report.Machine.PostgreSQL); err != nil {
		return err
	}
	fill := fmt.Sprintf("CREATE TABLE warm AS SELECT repeat('x', 1000) FROM generate_series(1, %d)", l.events*2)
	for _, statement := range []string{fill, "DROP TABLE warm", "CHECKPOINT"} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

func (l *lab) close() {
	var errs error
	if l.postgres != nil {
		errs = errors.Join(errs, l.postgres.Close())
	}
	if l.broker != nil {
		errs = errors.Join(errs, l.broker.Close())
	}
	if l.dir != "" {
		errs = errors.Join(errs, os.RemoveAll(l.dir))
	}
	if errs != nil {
		fmt.Fprintln(os.Stderr, "peers: cleaning up:", errs)
	}
}

func (l *lab) run(ctx context.Context) error {
	for round := range l.rounds {
		l.planned += len(l.turns(round))
	}
	if l.kills > 0 {
		l.planned += len(l.peers)
	}
	l.began = time.Now()
	if l.rounds > 0 {
		if err := l.measureSpeed(ctx); err != nil {
			return err
		}
	}
	if l.kills > 0 {
		if err := l.countKills(ctx); err != nil {
			return err
		}
	}
	var errs error
	for _, p := range l.peers {
		errs = errors.Join(errs, p.failed)
	}
	return errs
}

// turns returns the peers of a round, in their order: first of all those that are fast.
func (l *lab) turns(round int) []*peer {
	var list []*peer
	for _, p := range l.peers {
		if p.failed == nil && (p.isPair() || round%l.every == 0) {
			list = append(list, p)
		}
	}
	return measure.Alternate(list, round)
}

// drop ends a peer's part in the comparison, so that the others go on without it. It returns the
// error if the comparison has ended.
func (l *lab) drop(ctx context.Context, p *peer, err error) error {
	if ctx.Err() != nil {
		return err
	}
	p.failed = fmt.Errorf("%s: %w", p.Name, err)
	l.progress("goes on without %v", p.failed)
	return nil
}

// progress prints a line with the time and with how many runs have begun.
func (l *lab) progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%s [%d/%d, %v] %s\n", time.Now().Format("15:04:05"), l.runs, l.planned, time.Since(l.began).Round(time.Second), fmt.Sprintf(format, args...))
}

// target is a fresh database with the table that a run writes to.
type target struct {
	lab  *lab
	name string
	url  string
	db   *pgxpool.Pool
	// written selects the rows that the peer has written.
	written string
	filled  int64 // the table's size in bytes before the run
}

func (l *lab) newTarget(ctx context.Context) (*target, error) {
	l.runs++
	t := &target{lab: l, name: fmt.Sprintf("run_%d", l.runs)}
	admin, err := pgx.Connect(ctx, l.postgres.URL("postgres"))
	if err != nil {
		return nil, err
	}
	_, err = admin.Exec(ctx, "CHECKPOINT") // so that no run writes what an earlier one has left
	if err := errors.Join(err, admin.Close(ctx)); err != nil {
		return nil, fmt.Errorf("CHECKPOINT: %w", err)
	}
	if t.url, err = l.postgres.CreateDatabase(ctx, t.name); err != nil {
		return nil, err
	}
	if t.db, err = pgxpool.New(ctx, t.url); err != nil {
		return nil, err
	}
	if err := t.makeTable(ctx); err != nil {
		t.drop()
		return nil, err
	}
	return t, nil
}

// makeTable makes the table, for updates with all rows of the topic.
func (t *target) makeTable(ctx context.Context) error {
	t.written = "true"
	key := ""
	if t.lab.keyed != "" {
		key = ", PRIMARY KEY (hub_partition, sequence_number)"
	}
	if _, err := t.db.Exec(ctx, `CREATE TABLE events (hub_partition integer, sequence_number bigint, body text`+key+`)`); err != nil || t.lab.keyed != updates {
		return err
	}
	fill := fmt.Sprintf(`INSERT INTO events SELECT n %% %d, n / %[1]d, repeat('x', %d) FROM generate_series(0, %d) AS n`, partitions, bodySize, t.lab.events-1)
	if _, err := t.db.Exec(ctx, fill); err != nil {
		return err
	}
	var filled string
	if err := t.db.QueryRow(ctx, `SELECT xmin::text FROM events LIMIT 1`).Scan(&filled); err != nil {
		return err
	}
	t.written = "xmin::text <> '" + filled + "'"
	for _, statement := range []string{`VACUUM ANALYZE events`, `CHECKPOINT`} {
		if _, err := t.db.Exec(ctx, statement); err != nil {
			return err
		}
	}
	var err error
	t.filled, err = t.size(ctx)
	return err
}

func (t *target) drop() {
	t.db.Close()
	if err := t.lab.postgres.DropDatabase(context.Background(), t.name); err != nil {
		t.lab.progress("drop database: %v", err)
	}
}

// size is that of the table in bytes. It costs next to nothing.
func (t *target) size(ctx context.Context) (bytes int64, err error) {
	err = t.db.QueryRow(ctx, `SELECT pg_relation_size('events')`).Scan(&bytes)
	return bytes, err
}

func (t *target) rows(ctx context.Context) (rows int, err error) {
	err = t.db.QueryRow(ctx, `SELECT count(*) FROM events WHERE `+t.written).Scan(&rows)
	return rows, err
}

// environment is what a peer is started with: the program's own and the job.
func (t *target) environment(topic string) ([]string, error) {
	u, err := url.Parse(t.url)
	if err != nil {
		return nil, err
	}
	password, _ := u.User.Password()
	return append(os.Environ(),
		"KAFKA_BROKERS="+strings.Join(t.lab.broker.Brokers(), ","),
		"KAFKA_TOPIC="+topic,
		"KAFKA_GROUP="+t.name,
		"PARTITIONS="+strconv.Itoa(partitions),
		"DATABASE_URL="+t.url,
		"DATABASE_JDBC=jdbc:postgresql://"+u.Host+u.Path+"?reWriteBatchedInserts=true",
		"DATABASE_USER="+u.User.Username(),
		"DATABASE_PASSWORD="+password,
		"INSERT_MODE="+map[bool]string{false: "insert", true: "upsert"}[t.lab.keyed != ""],
		"KEY_MODE="+map[bool]string{false: "none", true: "record_value"}[t.lab.keyed != ""],
	), nil
}

// databasePid is the first process of the database server.
func (l *lab) databasePid() int {
	data, _ := os.ReadFile(filepath.Join(l.postgres.Dir(), "data", "postmaster.pid"))
	line, _, _ := strings.Cut(string(data), "\n")
	pid, _ := strconv.Atoi(line)
	return pid
}

func (l *lab) brokerPid() int {
	pid, _ := l.broker.Pid(1)
	return pid
}
