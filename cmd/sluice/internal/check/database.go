package check

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/driver"
)

// database is a database with Sluice's tables and one table more, the effects of handlers.
type database interface {
	leases() driver.LeaseStore
	claim(ctx context.Context, lease driver.Lease) (driver.Checkpoint, error)
	// commit runs a step. Its handler inserts a row for each effect, and then calls end, if it is
	// not nil.
	commit(ctx context.Context, step driver.Step, effects []int64, end func() error) error
	// effects returns the rows that handlers have inserted, ascending.
	effects(ctx context.Context) ([]int64, error)
	clock(ctx context.Context) (time.Time, error)
	// durable returns what shows that a commit survives a crash of the server. problem is why one
	// does not.
	durable(ctx context.Context) (found, problem string, err error)
	// losing returns the same database over connections that lose the reply to the nth request
	// after a handler has returned, which may be the COMMIT or one before it. It is nil if there is
	// no connection, as with a file.
	losing(ctx context.Context, nth int) (lossy, error)
	deadLetters() driver.DeadLetterStore
	// sessions returns connections with the settings of the store's, and the table that they
	// compete for; nil if there is no server.
	sessions() (db *sql.DB, table string)
	ping(ctx context.Context) error
}

// lossy is a database whose replies can be lost.
type lossy interface {
	commit(ctx context.Context, step driver.Step, effects []int64, end func() error) error
	close()
}

// databaseChecks are the checks of a SQL database.
var databaseChecks = []check[*databaseSystem]{
	{"db.durable", "A commit that was acknowledged survives a crash of the server: the checkpoint and the effects rest on it.", 0, (*databaseSystem).checkDurable},
	{"db.atomic", "What a handler writes and the checkpoint commit together or not at all: this makes effects exactly once.", 0, claims((*databaseSystem).checkAtomic)},
	{"db.fence", "A commit of an earlier owner is refused and writes nothing: an owner that was paused past its lease must not write.", 0, claims((*databaseSystem).checkFence)},
	{"db.position", "A commit from another position than the stored one is refused: a batch that was committed must not be applied again.", 0, claims((*databaseSystem).checkPosition)},
	{"db.race", "Of several commits of the same events at the same time exactly one succeeds.", 0, claims((*databaseSystem).checkRace)},
	{"db.claims", "Of several processes that claim a new partition at the same time the one with the highest epoch has it, and there is one checkpoint.", 0, (*databaseSystem).checkClaims},
	{"db.keys", "Groups whose names differ in case, accents, width or trailing blanks have checkpoints of their own.", 0, (*databaseSystem).checkKeys},
	{"db.large", "A dead letter with a body of 1 MiB, the largest event, is stored and comes back unchanged.", 0, claims((*databaseSystem).checkLarge)},
	{"db.bulk", "Many rows that a handler inserts at once are all there. If one violates a constraint, that is the handler's failure, and none is there.", 0, claims((*databaseSystem).checkBulk)},
	{"db.lostreply", "When the reply to a COMMIT is lost, reading the checkpoint says whether it was carried out: nothing is repeated before.", 0, (*databaseSystem).checkLostReply},
	{"db.paused", "A new owner gets the checkpoint while an earlier one is paused inside its transaction, within a third of the lease.", 0, claims((*databaseSystem).checkPaused)},
	{"db.apart", "A step of one partition does not wait for a step of another one: a process that is stopped holds up its own partitions only.", 0, claims((*databaseSystem).checkApart)},
	{"db.clock", "The server's clock runs as fast as this machine's: an owner gives up by its own clock, the lease expires by the server's.", 0, (*databaseSystem).checkClock},
	{"db.speed", "A commit takes less than a second: a partition handles one batch after the other.", 0, (*databaseSystem).measure},
}

// databaseSystem is a database that is checked.
type databaseSystem struct {
	database
	opts     Options
	name     string
	leaseFor time.Duration // the shortest lease that the checks use
	words    *words        // of its sessions; nil: there is no server

	rights  func(ctx context.Context, checks bool) []Right // of the checks, or those that a pipeline needs
	shown   func(context.Context) (time.Time, error)       // the server's clock, after rights; nil: it has none
	creates []string
	prepare func(context.Context, *Ledger) (database, error)
	closes  func()

	partitions atomic.Int64 // names of partitions already used
}

func (s *databaseSystem) Name() string                       { return s.name }
func (s *databaseSystem) Rights(ctx context.Context) []Right { return s.rights(ctx, true) }
func (s *databaseSystem) Creates() []string                  { return s.creates }
func (s *databaseSystem) Close(context.Context)              { s.closes() }

// Checks implements [System].
func (s *databaseSystem) Checks() []Check {
	list := append(bind(s, databaseChecks), leased(s.lease)...)
	if s.words == nil {
		return list
	}
	for _, c := range sessionChecks {
		if s.words.applies(c.name) {
			list = append(list, Check{c.name, c.assumes, c.bound, func(ctx context.Context) Finding {
				db, table := s.sessions()
				return c.run(&sessions{db, *s.words, table}, ctx)
			}})
		}
	}
	return list
}

// Prepare implements [System].
func (s *databaseSystem) Prepare(ctx context.Context, made *Ledger) (err error) {
	s.database, err = s.prepare(ctx, made)
	return err
}

func group(opts Options) driver.Group {
	return driver.Group{Namespace: "sluice-check", Topic: opts.ID, Name: "check"}
}

// partition returns a name that no check has used.
func (s *databaseSystem) partition() string { return fmt.Sprint("p", s.partitions.Add(1)) }

func (s *databaseSystem) lease() *leaseChecks {
	return &leaseChecks{s.leases(), group(s.opts), s.leaseFor, s.partition}
}

// incarnation is that of the topic, which does not exist, in the checkpoints of the checks.
const incarnation = "2000-01-01T00:00:00Z"

// owner makes a lease without the lease store: the stores trust what they are given.
func (s *databaseSystem) owner(partition, name string, epoch int64) driver.Lease {
	return driver.Lease{Group: group(s.opts), Partition: partition, Owner: name, Epoch: epoch}
}

func positionAt(sequence int64) driver.Position { return driver.Position{Sequence: sequence} }

// claimed makes a new partition whose checkpoint is at a position.
func (s *databaseSystem) claimed(ctx context.Context, position int64) (driver.Lease, error) {
	lease := s.owner(s.partition(), "first", 1)
	if _, err := s.claim(ctx, lease); err != nil {
		return lease, err
	}
	return lease, s.commit(ctx, driver.Step{Lease: lease, From: driver.Unset, To: positionAt(position)}, nil, nil)
}

// claims is a check that begins with a new partition whose checkpoint is at 10.
func claims(run func(*databaseSystem, context.Context, driver.Lease) Finding) func(*databaseSystem, context.Context) Finding {
	return func(s *databaseSystem, ctx context.Context) Finding {
		lease, err := s.claimed(ctx, 10)
		if err != nil {
			return failed("claiming a checkpoint", err)
		}
		return run(s, ctx, lease)
	}
}

var lastEffect atomic.Int64

// effect returns a number that no check has used.
func effect() int64 { return lastEffect.Add(1) }

// has reports whether the effects are in the database: all of them, or none.
func (s *databaseSystem) has(ctx context.Context, ids ...int64) (all, none bool, err error) {
	stored, err := s.effects(ctx)
	n := 0
	for _, id := range ids {
		if slices.Contains(stored, id) {
			n++
		}
	}
	return n == len(ids), n == 0, err
}

func (s *databaseSystem) checkDurable(ctx context.Context) Finding {
	found, problem, err := s.durable(ctx)
	switch {
	case err != nil:
		return failed("reading the settings", err)
	case problem != "":
		return differed("%s", problem).next("change the setting: after a crash of the server, effects and checkpoints that were acknowledged may be gone")
	}
	return held("%s", found)
}

var errHandler = errors.New("the handler fails on purpose")

func (s *databaseSystem) checkAtomic(ctx context.Context, lease driver.Lease) Finding {
	refused, kept := effect(), effect()
	if err := s.commit(ctx, driver.Step{Lease: lease, From: positionAt(10), To: positionAt(11)}, []int64{refused}, func() error { return errHandler }); err == nil {
		return differed("a step whose handler failed was committed")
	}
	if err := s.commit(ctx, driver.Step{Lease: lease, From: positionAt(10), To: positionAt(12)}, []int64{kept}, nil); err != nil {
		return differed("after a handler failed, its checkpoint is not where it was: %s", oneLine(err))
	}
	c, err := s.claim(ctx, lease)
	if err != nil {
		return failed("reading the checkpoint", err)
	}
	_, gone, err := s.has(ctx, refused)
	if err != nil {
		return failed("reading the effects", err)
	}
	there, _, err := s.has(ctx, kept)
	switch {
	case err != nil:
		return failed("reading the effects", err)
	case !gone:
		return differed("what a failed handler had written is in the database")
	case !there || c.Position.Sequence != 12:
		return differed("after a commit the effects are there: %t, and the checkpoint is at %v instead of 12", there, c.Position)
	}
	return held("a failed handler leaves nothing, a commit leaves both")
}

func (s *databaseSystem) checkFence(ctx context.Context, old driver.Lease) Finding {
	now := s.owner(old.Partition, "second", 2)
	if _, err := s.claim(ctx, now); err != nil {
		return failed("claiming for the next owner", err)
	}
	late := effect()
	err := s.commit(ctx, driver.Step{Lease: old, From: positionAt(10), To: positionAt(11)}, []int64{late}, nil)
	_, gone, readErr := s.has(ctx, late)
	_, again := s.claim(ctx, old)
	switch {
	case readErr != nil:
		return failed("reading the effects", readErr)
	case err == nil:
		return differed("a commit of the earlier owner succeeded")
	case !gone:
		return differed("a commit of the earlier owner was refused, and what its handler wrote is in the database")
	case !errors.Is(err, driver.ErrFenced):
		return failed("committing for the earlier owner", err)
	case !errors.Is(again, driver.ErrFenced):
		return differed("the earlier owner could claim the checkpoint again")
	}
	return held("the earlier owner's commit and claim are refused, and nothing is written")
}

func (s *databaseSystem) checkPosition(ctx context.Context, lease driver.Lease) Finding {
	for _, from := range []int64{9, 11} {
		wrong := effect()
		err := s.commit(ctx, driver.Step{Lease: lease, From: positionAt(from), To: positionAt(20)}, []int64{wrong}, nil)
		_, gone, readErr := s.has(ctx, wrong)
		switch {
		case readErr != nil:
			return failed("reading the effects", readErr)
		case err == nil || !gone:
			return differed("the checkpoint is at 10, and a commit from %d was carried out", from)
		case !errors.Is(err, driver.ErrFenced):
			return failed("committing from another position", err)
		}
	}
	return held("commits from other positions are refused")
}

func (s *databaseSystem) checkRace(ctx context.Context, lease driver.Lease) Finding {
	const rivals = 4
	var ids []int64
	for range rivals {
		ids = append(ids, effect())
	}
	errs := make([]error, rivals)
	var running sync.WaitGroup
	for i := range rivals {
		running.Go(func() {
			errs[i] = s.commit(ctx, driver.Step{Lease: lease, From: positionAt(10), To: positionAt(11)}, ids[i:i+1], nil)
		})
	}
	running.Wait()
	won := 0
	for _, err := range errs {
		switch {
		case err == nil:
			won++
		case !errors.Is(err, driver.ErrFenced):
			return failed("committing", err)
		}
	}
	stored, err := s.effects(ctx)
	written := 0
	for _, id := range ids {
		if slices.Contains(stored, id) {
			written++
		}
	}
	switch {
	case err != nil:
		return failed("reading the effects", err)
	case won != 1 || written != 1:
		return differed("of %d commits of the same events %d succeeded, and %d left their effects", rivals, won, written)
	}
	return held("of %d commits one succeeded", rivals)
}

func (s *databaseSystem) checkClaims(ctx context.Context) Finding {
	const rivals = 4
	partition := s.partition()
	errs := make([]error, rivals)
	var running sync.WaitGroup
	for i := range rivals {
		running.Go(func() {
			_, errs[i] = s.claim(ctx, s.owner(partition, fmt.Sprint("rival", i), int64(i+1)))
		})
	}
	running.Wait()
	for _, err := range errs {
		if err != nil && !errors.Is(err, driver.ErrFenced) {
			return failed("claiming a checkpoint", err)
		}
	}
	if errs[rivals-1] != nil {
		return differed("the claim with the highest epoch was refused: %s", oneLine(errs[rivals-1]))
	}
	for i := range rivals {
		_, err := s.claim(ctx, s.owner(partition, fmt.Sprint("rival", i), int64(i+1)))
		switch latest := i == rivals-1; {
		case err != nil && (latest || !errors.Is(err, driver.ErrFenced)):
			return failed("claiming a checkpoint again", err)
		case err == nil && !latest:
			return differed("the claim with epoch %d was accepted after that with epoch %d", i+1, rivals)
		}
	}
	return held("of %d claims the one with the highest epoch counts", rivals)
}

// mostRequests is more than a step makes after its handler.
const mostRequests = 8

// checkLostReply loses the reply to each request of a step in turn, up to the COMMIT.
func (s *databaseSystem) checkLostReply(ctx context.Context) Finding {
	for nth := range mostRequests {
		if finding := s.loseReply(ctx, nth+1); finding.State != "" {
			return finding
		}
	}
	return undecided("the reply to a COMMIT could not be lost")
}

// loseReply gives no verdict if the step was refused before its COMMIT, and nothing of it is left.
func (s *databaseSystem) loseReply(ctx context.Context, nth int) Finding {
	lease, err := s.claimed(ctx, 10)
	if err != nil {
		return failed("claiming a checkpoint", err)
	}
	connection, err := s.losing(ctx, nth)
	if err != nil {
		return failed("connecting", err)
	}
	if connection == nil {
		return skipped("a file has no replies that can be lost")
	}
	defer connection.close()
	id := effect()
	err = connection.commit(ctx, driver.Step{Lease: lease, From: positionAt(10), To: positionAt(11)}, []int64{id}, nil)
	c, claimErr := s.claim(ctx, lease)
	there, _, readErr := s.has(ctx, id)
	switch {
	case claimErr != nil:
		return failed("reading the checkpoint", claimErr)
	case readErr != nil:
		return failed("reading the effects", readErr)
	case err == nil:
		return differed("a commit whose reply was lost counts as successful")
	case (c.Position.Sequence == 11) != there:
		return differed("after a lost reply the checkpoint is at %v, and the effects are there: %t", c.Position, there)
	case !errors.Is(err, driver.ErrUnknown) && there:
		return differed("a commit whose reply was lost counts as refused, and was carried out")
	case !errors.Is(err, driver.ErrUnknown):
		return Finding{}
	}
	return held("the reply was lost, the finding is reported as unknown, and the checkpoint says that the commit was carried out: %t", there)
}

// paused begins a step whose handler writes the effects and then waits for resume, which ends it
// and returns the error of the step.
func (s *databaseSystem) paused(ctx context.Context, step driver.Step, effects []int64) (resume func() error, err error) {
	waiting, finished, resumed := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var late error
	go func() { // resume waits for it
		defer close(finished)
		late = s.commit(ctx, step, effects, func() error {
			close(waiting)
			<-resumed
			return nil
		})
	}()
	resume = sync.OnceValue(func() error {
		close(resumed)
		<-finished
		return late
	})
	select {
	case <-waiting:
		return resume, nil
	case <-finished:
		return nil, cmp.Or(late, errors.New("the handler was not called"))
	case <-ctx.Done():
		return nil, errors.Join(context.Cause(ctx), resume())
	}
}

func (s *databaseSystem) checkPaused(ctx context.Context, old driver.Lease) Finding {
	within := 5 * s.leaseFor
	if s.words != nil {
		within = max(within, s.words.paused)
	}
	id := effect()
	resume, err := s.paused(ctx, driver.Step{Lease: old, From: positionAt(10), To: positionAt(11)}, []int64{id})
	if err != nil {
		return failed("beginning a transaction", err)
	}
	defer resume()
	limited, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	began := time.Now()
	c, err := s.claim(limited, s.owner(old.Partition, "second", 2))
	took := time.Since(began).Round(time.Millisecond)
	late := resume()
	_, gone, readErr := s.has(ctx, id)
	switch {
	case readErr != nil:
		return failed("reading the effects", readErr)
	case err != nil && errors.Is(late, driver.ErrFenced):
		return failed("claiming", err)
	case err != nil:
		finding := tolerated("a claim did not get through to a paused transaction within %v (%s): a process that is stopped inside a transaction holds its partition up", within, oneLine(err))
		if s.words != nil {
			finding = finding.next("%s", s.words.next["db.paused"])
		}
		return finding
	case late == nil || !gone || c.Position.Sequence != 10:
		return differed("a transaction that was paused while the checkpoint was claimed could still commit")
	}
	return held("the next owner had the checkpoint after %v, and the paused transaction could not commit", took)
}

// apartWithin is how long a step may take beside one that is paused, unless the words say more:
// less than the server waits before it ends that.
const apartWithin = 3 * time.Second

func (s *databaseSystem) checkApart(ctx context.Context, first driver.Lease) Finding {
	second, err := s.claimed(ctx, 10)
	if err != nil {
		return failed("claiming a checkpoint", err)
	}
	resume, err := s.paused(ctx, driver.Step{Lease: first, From: positionAt(10), To: positionAt(11)}, []int64{effect()})
	if err != nil {
		return failed("beginning a transaction", err)
	}
	defer resume()
	within := apartWithin
	if s.words != nil {
		within = s.words.statementLimit()
	}
	limited, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	err = s.store(limited, second, 11, nil)
	switch late := resume(); {
	case err != nil && s.words == nil:
		return tolerated("a step waits for that of another partition: the database has one writer")
	case err != nil:
		return differed("a step of one partition was not committed within %v while one of another partition was in progress: %s", within, oneLine(err))
	case late != nil:
		return failed("committing the first step", late)
	}
	return held("a step of one partition was committed while one of another partition was in progress")
}

func (s *databaseSystem) checkClock(ctx context.Context) Finding {
	return checkClock(ctx, s.clock)
}

// checkClock compares a server's clock with this machine's, twice.
func checkClock(ctx context.Context, clock func(context.Context) (time.Time, error)) Finding {
	look := func() (difference, uncertain time.Duration, err error) {
		asked := time.Now()
		server, err := clock(ctx)
		difference, uncertain = clockDifference(server, asked, time.Now())
		return difference, uncertain, err
	}
	first, uncertain, err := look()
	if err != nil {
		return failed("reading the clock", err)
	}
	const between = 3 * time.Second
	if err := pause(ctx, between); err != nil {
		return failed("waiting", err)
	}
	second, more, err := look()
	if err != nil {
		return failed("reading the clock", err)
	}
	measure := Measure{"clock difference", second.Seconds(), "s"}
	uncertain += more
	// Some servers give whole seconds.
	switch drift := second - first; {
	case drift.Abs() > uncertain+time.Second+between/10:
		return differed("within %v the server's clock went %v further than this machine's", between, drift.Round(time.Millisecond)).with(measure).next("check the time synchronisation of both")
	case second.Abs() > uncertain+2*time.Second:
		return tolerated("the server's clock is %v ahead of this machine's; Sluice compares no times of the two", second.Round(time.Millisecond)).with(measure)
	}
	return held("the clocks differ by %v ± %v", second.Round(time.Millisecond), uncertain.Round(time.Millisecond)).with(measure)
}

func (s *databaseSystem) measure(ctx context.Context) Finding {
	times, err := roundTrips(ctx, "round trip", 50, s.ping)
	if err != nil {
		return failed("measuring", err)
	}
	lease, err := s.claimed(ctx, 0)
	if err != nil {
		return failed("claiming a checkpoint", err)
	}
	var took []time.Duration
	began := time.Now()
	const fewest = 5 // one may be slow by chance
	for n := int64(0); n < fewest || time.Since(began) < 3*time.Second; n++ {
		start := time.Now()
		if err := s.commit(ctx, driver.Step{Lease: lease, From: positionAt(n), To: positionAt(n + 1)}, []int64{effect()}, nil); err != nil {
			return failed("committing", err)
		}
		took = append(took, time.Since(start))
	}
	all := time.Since(began)
	rate := perSecond(float64(len(took)), all)
	times = append(times, Measure{"commit, p50", milliseconds(percentile(took, 50)), "ms"}, Measure{"commit, p99", milliseconds(percentile(took, 99)), "ms"}, Measure{"commits of one partition", rate, "per second"})
	if percentile(took, 50) > time.Second {
		return differed("half of the commits take longer than a second").with(times...).next("run the consumers near the database")
	}
	return held("%d commits in %v", len(took), all.Round(100*time.Millisecond)).with(times...)
}
