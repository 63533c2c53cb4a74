//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"time"

	"github.com/sluice-go/sluice/cmd/sluice/internal/proof/measure"
	"github.com/sluice-go/sluice/internal/proof/sqlservertest"
)

const maxPartitions = 4

// contender is one of the consumers that a trial compares.
type contender struct {
	Name string `json:"name"`
	Raw  bool   `json:"raw,omitempty"` // without decoding
}

func (c contender) String() string {
	if c.Raw {
		return c.Name + ", bodies as they are"
	}
	return c.Name
}

// trial is a comparison on one database, with one size of bodies and one number of partitions.
type trial struct {
	Database   string `json:"database,omitempty"`
	Body       int    `json:"body_bytes"`
	Partitions int    `json:"partitions"`
	contenders []contender
}

func (t trial) String() string { return fmt.Sprintf("%s/%dB/%d", t.Database, t.Body, t.Partitions) }

func sluiceAndByHand() []contender {
	return []contender{{Name: sluiceContender}, {Name: handContender}}
}

// trials lists what is compared on a hub of so many partitions with bodies of
// a size. The trial for which the project states its goal (1000 B, four
// partitions) also measures what decoding costs.
func trials(body, partitions int) []trial {
	postgres := trial{"postgres", body, partitions, sluiceAndByHand()}
	if body == 1000 && partitions == maxPartitions {
		postgres.contenders = append(postgres.contenders, contender{sluiceContender, true}, contender{handContender, true}, contender{Name: observedContender})
	}
	list := []trial{postgres}
	for _, kind := range []string{"mariadb", "sqlserver", "sqlite"} {
		list = append(list, trial{kind, body, partitions, sluiceAndByHand()})
	}
	return append(list, trial{noDatabase, body, partitions, []contender{{Name: readContender}, {Name: sdkContender}, {Name: ownContender}}})
}

// measureAll runs all trials, and writes a line of progress after each run.
func measureAll(ctx context.Context, o options, progress io.Writer) (*report, error) {
	db := &databases{}
	defer db.close()
	r := newReport()
	if err := measureTrials(ctx, o, db, r, trials, progress); err != nil {
		return nil, err
	}
	return r, nil
}

// measureTrials runs the trials for each size of bodies and number of partitions.
func measureTrials(ctx context.Context, o options, db *databases, r *report, of func(body, partitions int) []trial, progress io.Writer) error {
	for _, partitions := range []int{maxPartitions, 1} {
		for _, body := range []int{1000, 200} {
			var wanted []trial
			for _, t := range of(body, partitions) {
				t.contenders = slices.DeleteFunc(slices.Clone(t.contenders), func(c contender) bool { return !o.only.MatchString(t.String() + "/" + c.String()) })
				if len(t.contenders) > 0 {
					wanted = append(wanted, t)
				}
			}
			if len(wanted) == 0 {
				continue
			}
			if err := measureHub(ctx, o, db, r, wanted, progress); err != nil {
				return err
			}
		}
	}
	return nil
}

// measureHub fills a hub and runs the trials that are about it, which differ
// in the database.
func measureHub(ctx context.Context, o options, db *databases, r *report, wanted []trial, progress io.Writer) error {
	body, partitions := wanted[0].Body, wanted[0].Partitions
	h, err := startHub(ctx, partitions)
	if err != nil {
		return err
	}
	defer h.end()
	each := o.events / partitions / eventsPerBatch * eventsPerBatch
	perSecond, err := h.fill(ctx, each, body)
	if err != nil {
		return fmt.Errorf("fill hub: %w", err)
	}
	fmt.Fprintf(progress, "%d partitions, %d B: filled at %.0f/s\n", partitions, body, perSecond)
	r.addHub(body, partitions, perSecond)
	for _, t := range wanted {
		if t.Database != noDatabase {
			s, err := db.server(ctx, t.Database)
			if errors.Is(err, sqlservertest.ErrMissing) {
				fmt.Fprintf(progress, "%s: left out: %v\n", t, err)
				continue
			} else if err != nil {
				return err
			}
			r.Machine.Databases[t.Database] = s.version()
		}
		for i := range o.runs {
			for _, c := range measure.Alternate(t.contenders, i) {
				run, err := db.run(ctx, o, h, t, c, each)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", t, c, err)
				}
				fmt.Fprintf(progress, "%s %d/%d %s: %.0f/s, CPU µs an event: consumer %.1f, hub %.1f, database %.1f\n",
					t, i+1, o.runs, c, run.PerSecond, run.ConsumerCPU, run.HubCPU, run.DatabaseCPU)
				r.add(t, c, run)
			}
		}
	}
	return nil
}

// outcome is what was measured in one run.
type outcome struct {
	runStats
	PerSecond float64 `json:"events_per_second"`
	// Processor time of an event in microseconds.
	ConsumerCPU float64 `json:"consumer_cpu_us"`
	HubCPU      float64 `json:"hub_cpu_us"`
	DatabaseCPU float64 `json:"database_cpu_us"`
}

// run measures one contender that reads a filled hub into a fresh database.
func (db *databases) run(ctx context.Context, o options, h *hub, t trial, c contender, each int) (*outcome, error) {
	d, err := db.fresh(ctx, t.Database, c)
	if err != nil {
		return nil, err
	}
	defer d.drop()
	j := &job{Contender: c.Name, Hub: h.connection, Partitions: t.Partitions, Events: each, Database: d.url, Raw: c.Raw, Body: t.Body, Batch: o.batch}
	if o.profiles != "" {
		name := fmt.Sprintf("%s-%dB-%d-%s-", t.Database, t.Body, t.Partitions, c)
		j.Profiles = filepath.Join(o.profiles, name)
	}
	var before, after [2]time.Duration
	use := func() [2]time.Duration {
		return [2]time.Duration{measure.CPUOf(h.cmd.Process.Pid), measure.CPUOf(d.pid)}
	}
	out := &outcome{}
	err = consumeBy(ctx, j, &out.runStats, func() { before = use() }, func() { after = use() })
	if err != nil {
		return nil, err
	}
	all := float64(each * t.Partitions)
	out.PerSecond = all / out.Seconds
	out.ConsumerCPU = out.CPU / all * 1e6
	out.HubCPU = (after[0] - before[0]).Seconds() / all * 1e6
	out.DatabaseCPU = (after[1] - before[1]).Seconds() / all * 1e6
	return out, d.hasRows(ctx, each*t.Partitions)
}

// runWithin bounds a run.
const runWithin = 5 * time.Minute

// consumeBy runs a consumer process, and calls started and stopped when its
// clock starts and stops. The process waits for each to return.
func consumeBy(ctx context.Context, j *job, f *runStats, started, stopped func()) (err error) {
	ctx, cancel := context.WithTimeout(ctx, runWithin)
	defer cancel()
	child, err := spawn(ctx, consumerRole, j)
	if err != nil {
		return err
	}
	defer func() {
		if ended := child.end(); err == nil {
			err = ended
		}
	}()
	var word string
	for _, then := range []func(){started, stopped} {
		if err := child.receive(&word); err != nil {
			return err
		}
		then()
		if err := child.confirm(); err != nil {
			return err
		}
	}
	return child.receive(f)
}
