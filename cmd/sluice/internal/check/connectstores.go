package check

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-go/sluice/cmd/sluice/internal/checkpoint"
	"github.com/sluice-go/sluice/cmd/sluice/internal/pipelines"
	"github.com/sluice-go/sluice/pipeline"
)

// checkStores looks at Sluice's tables, and at leases, checkpoints and dead letters in them. Tables
// that are missing or old are left as they are: to open them would make them.
func (s *stage) checkStores(ctx context.Context) List {
	schema, err := s.Schema(ctx)
	if err != nil {
		return nil // as the check of the database reports
	}
	tables := schemaFinding(schema)
	switch {
	case tables.State == Failed || !schema.Exists() || schema.Version < schema.Known:
		return List{tables}
	case s.Rollup:
		return List{tables, found(OK, "partitions", "the pipeline keeps statistics in memory: it has no checkpoints")}
	}
	rows, hub, err := s.list(ctx)
	if errors.Is(err, pipeline.ErrLeasesMissing) {
		return List{tables, found(Warning, "owners", "%v", err)}
	}
	if err != nil {
		return List{tables, found(Failed, "partitions", "%v", err).next("grant the rights that the error names, or try again")}
	}
	all := append(List{tables}, s.owners(rows)...)
	all = append(all, s.positions(rows, hub)...)
	return append(all, s.deadLetters(rows))
}

func schemaFinding(v pipeline.Schema) Finding {
	const name = "tables"
	switch {
	case v.Known == 0 && v.Exists():
		return found(OK, name, "the container exists")
	case v.Known == 0:
		return found(OK, name, "the container does not exist: the first start creates it")
	case !v.Exists():
		return found(OK, name, "Sluice's tables are missing: the first start creates them (version %d)", v.Known)
	case v.Oldest > v.Known:
		return found(Failed, name, "Sluice's tables are of version %d, and this program knows %d: it cannot use them", v.Version, v.Known).next("install a program that knows version %d", v.Oldest)
	case v.Version > v.Known:
		return found(Warning, name, "Sluice's tables are of version %d, which this program, of version %d, can still use", v.Version, v.Known).next("upgrade this program when the rolling upgrade goes on")
	case v.Version < v.Known:
		return found(OK, name, "Sluice's tables are of version %d: the next start brings them to %d; until then leases and checkpoints are not looked at", v.Version, v.Known)
	}
	return found(OK, name, "Sluice's tables are of version %d, as this program makes them", v.Version)
}

func (s *stage) list(ctx context.Context) (rows []checkpoint.Row, hub, err error) {
	parts, err := s.OpenExisting(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer pipelines.CloseParts(ctx, parts)
	t := &checkpoint.Table{Noun: s.System.Noun(), Group: parts.Group, Source: parts.Source, Leases: parts.Leases, Checkpoints: parts.Checkpoints, DeadLetters: parts.DeadLetters}
	return t.List(ctx)
}

// owners says who owns which partition, and when its leases were last renewed.
func (s *stage) owners(rows []checkpoint.Row) List {
	const name = "owners"
	var order, free []string
	begun := false
	owned, oldest := map[string][]string{}, map[string]time.Duration{}
	for _, r := range rows {
		begun = begun || r.Begun
		if r.Owner == "" {
			free = append(free, r.Partition)
			continue
		}
		if owned[r.Owner] == nil {
			order = append(order, r.Owner)
		}
		owned[r.Owner] = append(owned[r.Owner], r.Partition)
		oldest[r.Owner] = max(oldest[r.Owner], s.LeaseFor()-r.LeaseLeft)
	}
	var all List
	for _, owner := range order {
		all = append(all, found(OK, name, "%s owns %s, and renewed each lease at most %v ago", owner, partitions(owned[owner]), oldest[owner].Round(time.Second)))
	}
	switch {
	case len(order) == 0 && !begun:
		return List{found(OK, name, "no partition has an owner: no consumer has started yet")}
	case len(order) == 0:
		return List{found(Warning, name, "no partition has an owner: no consumer runs").next("start one: sluice run %s", s.file)}
	case len(free) > 0:
		all = append(all, found(Warning, name, "without an owner: %s", partitions(free)).next("start another process, raise partitions, or write partitions: balanced; after a crash wait until the lease has expired"))
	}
	return all
}

const (
	// nearRetention is the part of what the hub holds before a checkpoint below which retention is
	// near it.
	nearRetention = 0.1
	// stuckAfter is how long a checkpoint may stay while events wait: the default of
	// health.WatcherConfig.
	stuckAfter = 5 * time.Minute
)

// positions compares checkpoints with what the log holds.
func (s *stage) positions(rows []checkpoint.Row, hub error) List {
	var all List
	var total, most int64
	var where string
	known := true
	for _, r := range rows {
		if r.Lag < 0 {
			known = false
			continue
		}
		if total += r.Lag; r.Lag > most {
			most, where = r.Lag, r.Partition
		}
		if f, bad := s.position(r); bad {
			all = append(all, f)
		}
	}
	switch {
	case !known && hub != nil:
		return append(all, found(Warning, "lag", "not known: %v", hub).next("look at the line of the source"))
	case total == 0:
		return append(all, found(OK, "lag", "0"))
	}
	return append(all, found(OK, "lag", "%d events wait, the most in partition %s: %d", total, where, most))
}

// position is about one checkpoint; bad is false if nothing is wrong with it.
func (s *stage) position(r checkpoint.Row) (f Finding, bad bool) {
	const name = "checkpoint"
	set := s.command("checkpoints set") + " --partition " + r.Partition + " --to …"
	at, held := r.Position.Sequence, r.End-r.First+1
	switch {
	case r.Recreated:
		return found(Failed, name, "partition %s: the checkpoint is of an earlier %s, which was deleted and created again", r.Partition, s.System.Noun()).next("decide where to start, then %s", set), true
	case !r.Begun || r.Lag == 0:
		return f, false
	case at+1 < r.First:
		return found(Failed, name, "partition %s: retention has removed events %d to %d before they were read", r.Partition, at+1, r.First-1).next("restore them from another source if there is one, then %s", set), true
	case r.First > 0 && float64(at+1-r.First) < nearRetention*float64(held):
		return found(Warning, name, "partition %s: retention is near: the checkpoint %d is among the oldest tenth of the events %d to %d", r.Partition, at, r.First, r.End).next("consume faster, or extend the retention of the %s", s.System.Noun()), true
	case r.Owner != "" && s.Now().Sub(r.Updated) > stuckAfter:
		return found(Warning, name, "partition %s: the checkpoint has not moved for %v while %d events wait", r.Partition, s.Now().Sub(r.Updated).Round(time.Second), r.Lag).next("look at the log of %s", r.Owner), true
	}
	return f, false
}

func (s *stage) deadLetters(rows []checkpoint.Row) Finding {
	n := 0
	for _, r := range rows {
		n += r.DeadLetters
	}
	if n == 0 {
		return found(OK, "dead letters", "none")
	}
	return found(Warning, "dead letters", "%d wait", n).next("%s", s.command("deadletters list"))
}

// partitions names partitions, in their order, and at most some.
func partitions(ids []string) string {
	const named = 16
	slices.SortFunc(ids, func(a, b string) int {
		if len(a) != len(b) {
			return len(a) - len(b)
		}
		return strings.Compare(a, b)
	})
	text := "partition"
	if len(ids) > 1 {
		text += "s"
	}
	text += " " + strings.Join(ids[:min(named, len(ids))], ", ")
	if more := len(ids) - named; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
