package emulator

import (
	"context"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/sluice-go/sluice/emulator/internal/eventhubs"
	"github.com/sluice-go/sluice/internal/amqp"
)

// hubsAsAzure is how a [Server] behaves: the settings of [EventHubsAsAzure], and what they
// need to remember.
type hubsAsAzure struct {
	EventHubsAsAzure
	dice  dice
	calls callRate
	stale staleInfo
	geo   *replication // nil: not geo-replicated
}

func newHubsAsAzure(a *AsAzure) *hubsAsAzure {
	a = a.orDefault()
	h := &hubsAsAzure{EventHubsAsAzure: a.EventHubs}
	h.dice.random = rand.New(rand.NewPCG(a.Seed, 0))
	h.calls.perSecond = h.RuntimeCalls
	h.stale.age = h.StaleRuntime
	if h.Geo {
		h.geo = newReplication()
	}
	return h
}

// dice makes the decisions that Azure makes at random.
type dice struct {
	mu     sync.Mutex
	random *rand.Rand
}

// upTo returns a number from 0 to n.
func (d *dice) upTo(n int) int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.random.Int64N(int64(n) + 1)
}

// hits returns true for a share of the calls.
func (d *dice) hits(share float64) bool {
	if share == 0 {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.random.Float64() < share
}

// callRate limits the calls in each second of the clock.
type callRate struct {
	perSecond int // 0: unlimited

	mu     sync.Mutex
	second int64
	calls  int
}

func (r *callRate) allow(now time.Time) bool {
	if r.perSecond == 0 {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := now.Unix(); s != r.second {
		r.second, r.calls = s, 0
	}
	r.calls++
	return r.calls <= r.perSecond
}

// staleInfo gives what partitions held some time ago.
type staleInfo struct {
	age time.Duration // 0: what they hold now

	mu     sync.Mutex
	latest map[*eventhubs.Partition]snapshot
}

type snapshot struct {
	taken time.Time
	info  eventhubs.Info
}

// lookup returns what p held between age and 5/4 of it ago: to look that up means to read the log,
// so that each answer serves a while.
func (s *staleInfo) lookup(p *eventhubs.Partition, now time.Time) (eventhubs.Info, error) {
	if s.age == 0 {
		return p.Info(), nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if last, ok := s.latest[p]; ok && now.Sub(last.taken) < s.age/4 {
		return last.info, nil
	}
	info, err := p.InfoAt(now.Add(-s.age))
	if err != nil {
		return info, err
	}
	if s.latest == nil {
		s.latest = make(map[*eventhubs.Partition]snapshot)
	}
	s.latest[p] = snapshot{taken: now, info: info}
	return info, nil
}

// runtimeInfo returns what a client gets to know about a partition.
func (a *hubsAsAzure) runtimeInfo(p *eventhubs.Partition, now time.Time) (eventhubs.Info, error) {
	if a.NoRuntime {
		return eventhubs.Info{Last: -1, LastOffset: "-1", Empty: true}, nil
	}
	info, err := a.stale.lookup(p, now)
	if err == nil && a.InexactBeginning > 0 {
		info.First += a.dice.upTo(2*a.InexactBeginning) - int64(a.InexactBeginning)
		info.First = max(0, min(info.First, info.Last+1))
	}
	return info, err
}

// beginning returns where a receiver begins that asked for next: up to EarlierEvents before
// the end of the partition, if it asked for the end by a position.
func (a *hubsAsAzure) beginning(p *eventhubs.Partition, start eventhubs.StartPosition, next int64) int64 {
	info := p.Info()
	atEvent := start.Kind == eventhubs.AtSequence || start.Kind == eventhubs.AtOffset && start.Offset != "@latest"
	if a.EarlierEvents == 0 || !atEvent || next != info.Last+1 {
		return next
	}
	return max(info.First, next-a.dice.upTo(a.EarlierEvents))
}

// refuse refuses a receiver because of err: its attach, or with LateRefusal the link a while
// after its attach was answered. The results are those of openReceiver.
func (a *hubsAsAzure) refuse(err error) (func(context.Context) error, error) {
	if a.LateRefusal == 0 {
		return nil, err
	}
	return func(ctx context.Context) error {
		late := time.NewTimer(a.LateRefusal)
		defer late.Stop()
		select {
		case <-late.C:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}, nil
}

// inject injects the fault that matches an operation on a link, or refuses the operation at
// random; the results are those of [Faults.inject].
func (c *hubPeer) inject(ctx context.Context, l *amqp.Link, on Operation, hub, partition string) (FaultKind, error) {
	kind, err := c.namespace.faults.inject(ctx, l, on, hub, partition)
	if kind == "" && c.azure.dice.hits(c.azure.RandomBusy) {
		return FaultServerBusy, errServerBusy
	}
	return kind, err
}

// busyReply answers a request for runtime information that is refused.
func busyReply() reply {
	return reply{status: http.StatusServiceUnavailable, description: errServerBusy.Description, condition: errServerBusy.Condition}
}
