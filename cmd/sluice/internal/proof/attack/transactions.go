//go:build linux

package attack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// abortedEvery: one of so many transactions aborts.
	abortedEvery = 10
	// mostPerTransaction bounds the records of a transaction.
	mostPerTransaction = 200
)

// outcome is how a transaction has ended, as its producer knows it.
type outcome int

const (
	unknown   outcome = iota // the answer was lost: all of its records are there, or none
	committed                // acknowledged
	aborted                  // acknowledged
)

// transaction holds the records with the numbers from first on.
type transaction struct {
	first, count int64
	outcome      outcome
	cause        error // why the outcome is unknown
}

// ledger has all transactions. It is safe for concurrent use.
type ledger struct {
	mu           sync.Mutex
	transactions []*transaction
	next         int64 // number of a record
	acked        int64 // records of transactions that have committed
	aborts       int   // transactions that have aborted
}

// begin adds a transaction of so many records, and returns whether it is to abort: until enough
// have, whatever happens to those that were to.
func (l *ledger) begin(count int64) (t *transaction, abort bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t = &transaction{first: l.next, count: count}
	l.transactions = append(l.transactions, t)
	l.next += count
	return t, len(l.transactions) >= abortedEvery*(l.aborts+1)
}

func (l *ledger) end(t *transaction, o outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t.outcome = o
	switch o {
	case committed:
		l.acked += t.count
	case aborted:
		l.aborts++
	}
}

// fail notes why the outcome of a transaction is unknown.
func (l *ledger) fail(t *transaction, cause error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t.cause = cause
}

func (l *ledger) acknowledged() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.acked
}

// count returns how many transactions there are of each outcome.
func (l *ledger) count() map[outcome]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := map[outcome]int{}
	for _, t := range l.transactions {
		n[t.outcome]++
	}
	return n
}

// compare reports the records that are in the log although their transaction has aborted, those
// that are missing although it has committed, and those of transactions that are there in part.
// seen is how often a reader of committed transactions has seen each record, and places where each
// is in the log.
func (l *ledger) compare(seen []int, places map[int64]string, find func(string, ...any)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range l.transactions {
		there, twice, present, missing := int64(0), int64(-1), "", ""
		for n := t.first; n < t.first+t.count; n++ {
			if seen[n] > 0 {
				there, present = there+1, places[n]
			} else {
				missing = fmt.Sprintf("%d at %s", n, cmp.Or(places[n], "no place"))
			}
			if seen[n] > 1 {
				twice = n
			}
		}
		switch {
		case twice >= 0:
			find("record %d is in the log %d times", twice, seen[twice])
		case t.outcome == committed && there < t.count:
			find("%d of the records %d to %d, whose commit was acknowledged, are not read: the last of them is %s", t.count-there, t.first, t.first+t.count-1, missing)
		case t.outcome == aborted && there > 0:
			find("%d of the records %d to %d are in the log, but their transaction has aborted", there, t.first, t.first+t.count-1)
		case there > 0 && there < t.count:
			find("%d of the records %d to %d of one transaction are read, %d are not: the last of those is %s, another is at %s; its end: %v", there, t.first, t.first+t.count-1, t.count-there, missing, present, t.cause)
		}
	}
}

func (c *cluster) acknowledged() int64 { return c.ledger.acknowledged() }

// send runs producers until the plan's records are acknowledged and enough is closed: a tenth of
// them at once, and then at the plan's rate.
func (c *cluster) send(ctx context.Context, enough <-chan struct{}) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	began := time.Now()
	due := func() bool {
		return c.acknowledged() < int64(c.world.Plan.Events/10)+int64(time.Since(began).Seconds()*float64(c.world.Plan.Rate))
	}
	all := func() bool {
		select {
		case <-enough:
			return c.acknowledged() >= int64(c.world.Plan.Events)
		default:
			return false
		}
	}
	var sending sync.WaitGroup
	for i := range producers {
		sending.Go(func() {
			p := &producer{cluster: c, id: fmt.Sprintf("attack-%d", i), load: &load{records: c.world.Records}, random: rand.New(rand.NewPCG(c.world.Plan.Seed, uint64(200+i)))}
			defer p.close()
			for ctx.Err() == nil && !all() {
				if !due() {
					select {
					case <-enough: // without the rate, then
					default:
						sleep(ctx, 20*time.Millisecond)
						continue
					}
				}
				if err := p.transact(ctx); err != nil {
					cancel(err)
				}
			}
		})
	}
	sending.Wait()
	if err := context.Cause(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// producer writes transactions one after the other.
type producer struct {
	cluster *cluster
	id      string
	load    *load
	random  *rand.Rand
	client  *kgo.Client // nil: to be made
}

// transact writes one transaction. What fails at the broker is no error: the transaction's outcome
// is unknown then, and the next client of the producer ends it.
func (p *producer) transact(ctx context.Context) error {
	if p.client == nil {
		var err error
		p.client, err = p.cluster.client(p.cluster.sender,
			kgo.TransactionalID(p.id), kgo.TransactionTimeout(30*time.Second),
			kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)), kgo.ProducerLinger(0))
		if err != nil {
			return err
		}
	}
	t, abort := p.cluster.ledger.begin(1 + p.random.Int64N(mostPerTransaction))
	bodies, err := p.bodies(t)
	if err != nil {
		return err
	}
	try, ended := kgo.TryCommit, committed
	if abort {
		try, ended = kgo.TryAbort, aborted
	}
	if err = p.client.BeginTransaction(); err == nil {
		err = p.write(ctx, bodies)
	}
	if err == nil {
		if err = p.client.EndTransaction(ctx, try); err != nil {
			err = fmt.Errorf("end the transaction: %w", err)
		}
	}
	if err != nil {
		p.cluster.ledger.fail(t, err)
		p.close()
		return nil
	}
	p.cluster.ledger.end(t, ended)
	return nil
}

// bodies are the bodies of a transaction's records.
func (p *producer) bodies(t *transaction) ([][]byte, error) {
	list := make([][]byte, t.count)
	for i := range list {
		var err error
		if list[i], err = p.load.record(t.first + int64(i)); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// write writes records, half the time with a pause in the middle, so that readers have to wait for
// the end of the transaction.
func (p *producer) write(ctx context.Context, bodies [][]byte) error {
	var mu sync.Mutex
	var failed error
	promise := func(_ *kgo.Record, err error) {
		mu.Lock()
		defer mu.Unlock()
		if failed == nil {
			failed = err
		}
	}
	pause := p.random.IntN(2 * len(bodies))
	for i, body := range bodies {
		r := &kgo.Record{Topic: p.cluster.topic, Value: body}
		if i%3 > 0 {
			r.Key = fmt.Appendf(nil, "key-%d", p.random.IntN(100))
		}
		p.client.Produce(ctx, r, promise)
		if i == pause {
			if err := p.client.Flush(ctx); err != nil {
				return err
			}
			sleep(ctx, randomTime(p.random, 0, 300*time.Millisecond))
		}
	}
	if err := p.client.Flush(ctx); err != nil {
		return err
	}
	mu.Lock()
	defer mu.Unlock()
	return failed
}

// close ends the client. The transactions that it has left open are ended by the next client with
// the same id, or by the broker in time.
func (p *producer) close() {
	if p.client != nil {
		p.client.Close()
		p.client = nil
	}
}
