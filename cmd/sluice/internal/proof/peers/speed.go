//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sluice-go/sluice/cmd/sluice/internal/proof/measure"
)

// speed is what was measured in one run.
type speed struct {
	Round     int     `json:"round"`
	Rows      int     `json:"rows"`
	Doubled   int     `json:"doubled"`
	Seconds   float64 `json:"seconds"`
	PerSecond float64 `json:"events_per_second"`
	// Processor time of an event in microseconds, while the clock runs.
	CPU         float64 `json:"cpu_us"`
	BrokerCPU   float64 `json:"broker_cpu_us"`
	DatabaseCPU float64 `json:"database_cpu_us"`
	// WholeCPU is what the consumer has used from its start to its end, in seconds.
	WholeCPU     float64 `json:"whole_cpu_seconds"`
	PeakRSS      int64   `json:"peak_rss_bytes"`
	Transactions int     `json:"transactions"`
}

// measureSpeed lets the peers take turns.
func (l *lab) measureSpeed(ctx context.Context) error {
	const topic = "speed"
	began := time.Now()
	if err := l.fill(ctx, topic, l.events); err != nil {
		return err
	}
	l.progress("topic with %d events of %d B filled in %.0f s", l.events, bodySize, time.Since(began).Seconds())
	for round := range l.rounds {
		for _, p := range l.turns(round) {
			s, err := l.runForSpeed(ctx, p, topic)
			if err != nil {
				if err := l.drop(ctx, p, fmt.Errorf("round %d: %w", round+1, err)); err != nil {
					return err
				}
				continue
			}
			s.Round = round + 1
			l.report.addSpeed(p, s)
			l.progress("round %d of %d, %s: %.0f/s, CPU µs an event: consumer %.1f, broker %.1f, database %.1f; %d rows, %d doubled, %.0f rows a transaction",
				s.Round, l.rounds, p.Name, s.PerSecond, s.CPU, s.BrokerCPU, s.DatabaseCPU, s.Rows, s.Doubled, float64(s.Rows)/float64(s.Transactions))
		}
	}
	return nil
}

// spare is how long a run may take beyond what is measured.
const spare = 5 * time.Minute

func (l *lab) runForSpeed(ctx context.Context, p *peer, topic string) (*speed, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, l.limit+spare, fmt.Errorf("not done within %v", l.limit+spare))
	defer cancel()
	t, err := l.newTarget(ctx)
	if err != nil {
		return nil, err
	}
	defer t.drop()
	environment, err := t.environment(topic)
	if err != nil {
		return nil, err
	}
	if l.profiles != "" {
		prefix, err := filepath.Abs(filepath.Join(l.profiles, strings.ReplaceAll(p.Name, " ", "-")+"-"+t.name+"-"))
		if err != nil {
			return nil, err
		}
		environment = append(environment, "PROFILES="+prefix)
	}
	r, err := p.start(filepath.Join(l.dir, t.name), environment)
	if err != nil {
		return nil, err
	}
	defer r.kill()
	cpu := l.sampleCPU(r.cmd.Process.Pid)
	err = l.awaitRows(ctx, t, r)
	cpu.stop()
	if err != nil {
		return nil, err
	}
	usage := r.stop()
	s := &speed{PeakRSS: int64(usage.Maxrss) << 10, WholeCPU: time.Duration(usage.Utime.Nano() + usage.Stime.Nano()).Seconds()}
	return s, t.clock(ctx, s, cpu)
}

// startWithin bounds the time to the first row.
const startWithin = 2 * time.Minute

// awaitRows returns when all rows are there, or when the run has lasted long enough.
func (l *lab) awaitRows(ctx context.Context, t *target, r *process) error {
	starting, cancel := context.WithTimeoutCause(ctx, startWithin, fmt.Errorf("no row within %v", startWithin))
	defer cancel()
	err := r.poll(starting, 50*time.Millisecond, func() (bool, error) {
		size, err := t.size(ctx)
		return size > t.filled, err
	})
	if err != nil {
		return err
	}
	end := time.Now().Add(l.limit)
	var last int64
	still := 0
	return r.poll(ctx, 100*time.Millisecond, func() (bool, error) {
		if time.Now().After(end) {
			return true, nil
		}
		size, err := t.size(ctx)
		if size != last {
			last, still = size, 0
		} else if still++; still%10 == 9 { // counting is slow, so it waits until the table rests
			rows, err := t.rows(ctx)
			return rows >= l.events, err
		}
		return false, err
	})
}

// clock reads from the database how long the run took: from the moment when a quarter
// of the rows and some of every partition are there to the last commit.
func (t *target) clock(ctx context.Context, s *speed, cpu *cpuSamples) error {
	var began, ended *time.Time
	var partitionsSeen, counted int
	err := t.db.QueryRow(ctx, `
		WITH commits AS (
			SELECT xmin::text AS id, hub_partition, pg_xact_commit_timestamp(xmin) AS at, count(*) AS n
			FROM events WHERE `+t.written+` GROUP BY xmin, hub_partition),
		firsts AS (SELECT min(at) AS at FROM commits GROUP BY hub_partition),
		quarter AS (SELECT min(at) AS at FROM (SELECT at, sum(n) OVER (ORDER BY at) AS sum, sum(n) OVER () AS all FROM commits) AS s WHERE 4 * s.sum >= s.all),
		start AS (SELECT greatest(max(firsts.at), (SELECT at FROM quarter)) AS at, count(*) AS partitions FROM firsts)
		SELECT start.at, (SELECT max(at) FROM commits), start.partitions,
			(SELECT coalesce(sum(n), 0) FROM commits WHERE commits.at > start.at),
			(SELECT coalesce(sum(n), 0) FROM commits), (SELECT count(DISTINCT id) FROM commits)
		FROM start`).Scan(&began, &ended, &partitionsSeen, &counted, &s.Rows, &s.Transactions)
	if err != nil {
		return fmt.Errorf("read the times of the commits: %w", err)
	}
	if partitionsSeen != partitions || counted == 0 {
		return fmt.Errorf("%d rows of %d partitions: the run was too short", s.Rows, partitionsSeen)
	}
	// By sorting: to hash so many pairs took PostgreSQL 15 more than five minutes.
	var distinct int
	if err := t.db.QueryRow(ctx, `SELECT count(DISTINCT hub_partition::bigint << 48 | sequence_number) FROM events WHERE `+t.written).Scan(&distinct); err != nil {
		return fmt.Errorf("count distinct events: %w", err)
	}
	s.Doubled = s.Rows - distinct
	s.Seconds = ended.Sub(*began).Seconds()
	s.PerSecond = float64(counted) / s.Seconds
	used, err := cpu.usage(*began, *ended)
	perEvent := func(of time.Duration) float64 { return of.Seconds() / float64(counted) * 1e6 }
	s.CPU, s.BrokerCPU, s.DatabaseCPU = perEvent(used.consumer), perEvent(used.broker), perEvent(used.database)
	return err
}

// used is processor time.
type used struct{ consumer, broker, database time.Duration }

// cpuSamples are the processor time that the processes of a run have used, read every 50 ms.
type cpuSamples struct {
	end, ended chan struct{}
	times      []time.Time
	used       []used
}

func (l *lab) sampleCPU(consumer int) *cpuSamples {
	c := &cpuSamples{end: make(chan struct{}), ended: make(chan struct{})}
	broker, database := l.brokerPid(), l.databasePid()
	go func() {
		defer close(c.ended)
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			c.times = append(c.times, time.Now())
			c.used = append(c.used, used{measure.CPUOfOne(consumer), measure.CPUOfOne(broker), measure.CPUOf(database)})
			select {
			case <-tick.C:
			case <-c.end:
				return
			}
		}
	}()
	return c
}

// stop ends the sampling. It is called once.
func (c *cpuSamples) stop() {
	close(c.end)
	<-c.ended
}

// usage is what was used between two moments of the run.
func (c *cpuSamples) usage(from, to time.Time) (used, error) {
	at := func(moment time.Time) int {
		i, _ := slices.BinarySearchFunc(c.times, moment, time.Time.Compare)
		return min(i, len(c.times)-1)
	}
	i, j := at(from), at(to)
	if i == j {
		return used{}, errors.New("the run was too short to measure its processor time")
	}
	// The samples are a little off the moments: scale to their distance.
	scale := float64(to.Sub(from)) / float64(c.times[j].Sub(c.times[i]))
	scaled := func(of func(used) time.Duration) time.Duration {
		return time.Duration(float64(of(c.used[j])-of(c.used[i])) * scale)
	}
	return used{
		consumer: scaled(func(u used) time.Duration { return u.consumer }),
		broker:   scaled(func(u used) time.Duration { return u.broker }),
		database: scaled(func(u used) time.Duration { return u.database }),
	}, nil
}
