package eventhubs

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
)

// TestAttach attaches and detaches readers at random and compares the results
// with a model: epochs are compared with attached readers only.
func TestAttach(t *testing.T) {
	type link struct {
		group  string
		epoch  *int64
		name   string
		detach func()
		stolen string // by whom, in which epoch; "" if not
	}
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 3))
		p := mustPartition(t, mustHub(t, mustOpen(t, "", Config{Name: "h", Partitions: 1}), "h"), "0")
		var links []*link
		live := func(group string) (plain []*link, holder *link) {
			for _, l := range links {
				switch {
				case l.detach == nil || l.stolen != "" || l.group != group:
				case l.epoch == nil:
					plain = append(plain, l)
				default:
					holder = l
				}
			}
			return plain, holder
		}
		for step := range 60 {
			at := fmt.Sprintf("seed %d, step %d", seed, step)
			if len(links) > 0 && rng.IntN(3) == 0 {
				if l := links[rng.IntN(len(links))]; l.detach != nil {
					l.detach()
					l.detach() // a second call has no effect
					if l.stolen == "" {
						l.detach = nil
					}
				}
				continue
			}
			l := &link{group: []string{"$Default", "audit"}[rng.IntN(2)], name: fmt.Sprintf("reader %d", step)}
			if rng.IntN(3) == 0 {
				e := rng.Int64N(4)
				l.epoch = &e
			}
			plain, holder := live(l.group)
			before := map[*link]string{}
			for _, other := range links {
				before[other] = other.stolen
			}
			detach, err := p.Attach(l.group, l.name, l.epoch, func(by string, epoch int64) {
				if l.stolen != "" {
					t.Errorf("%s: stolen twice", at)
				}
				l.stolen = fmt.Sprint(by, " ", epoch)
			})
			var evicted []*link
			switch {
			case holder != nil && (l.epoch == nil || *l.epoch < *holder.epoch):
				var refused *EpochError
				if !errors.As(err, &refused) || refused.Held != *holder.epoch || refused.Holder != holder.name || (refused.Epoch == nil) != (l.epoch == nil) {
					t.Fatalf("%s: got %v, want an EpochError of %s", at, err, holder.name)
				}
			case l.epoch == nil && len(plain) == 5:
				var limit *ReaderLimitError
				if !errors.As(err, &limit) || limit.Limit != 5 || len(limit.Holders) != 5 || limit.Holders[0] != plain[0].name {
					t.Fatalf("%s: got %v, want a ReaderLimitError", at, err)
				}
			case err != nil:
				t.Fatalf("%s: %v", at, err)
			case l.epoch != nil && holder != nil:
				evicted = []*link{holder}
			case l.epoch != nil:
				evicted = plain
			}
			if err == nil {
				l.detach = detach
				links = append(links, l)
			}
			for _, other := range evicted {
				before[other] = fmt.Sprint(l.name, " ", *l.epoch)
			}
			for other, want := range before {
				if other.stolen != want {
					t.Fatalf("%s: %s of %s was stolen by %q, want %q", at, other.name, other.group, other.stolen, want)
				}
			}
		}
	}
}

// TestAttachConcurrently attaches many readers with epochs to one partition. All
// except the last are evicted exactly once.
func TestAttachConcurrently(t *testing.T) {
	p := mustPartition(t, mustHub(t, mustOpen(t, "", Config{Name: "h", Partitions: 1}), "h"), "0")
	var wg sync.WaitGroup
	var attached, stolen atomic.Int64
	for r := range 8 {
		wg.Go(func() {
			for i := range 200 {
				epoch := int64(i)
				_, err := p.Attach(DefaultGroup, fmt.Sprint(r), &epoch, func(string, int64) { stolen.Add(1) })
				var refused *EpochError
				switch {
				case err == nil:
					attached.Add(1)
				case !errors.As(err, &refused):
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if attached.Load() < 200 || stolen.Load() != attached.Load()-1 {
		t.Errorf("%d attached, %d stolen, want all but one", attached.Load(), stolen.Load())
	}
}

// TestAttachLocks attaches and detaches in stolen, which only works without locks
// held.
func TestAttachLocks(t *testing.T) {
	p := mustPartition(t, mustHub(t, mustOpen(t, "", Config{Name: "h", Partitions: 1}), "h"), "0")
	one, two := int64(1), int64(2)
	var refused error
	var detach func()
	detach, err := p.Attach(DefaultGroup, "first", &one, func(string, int64) {
		_, refused = p.Attach(DefaultGroup, "again", &one, nil)
		detach()
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Attach(DefaultGroup, "second", &two, nil); err != nil {
		t.Fatal(err)
	}
	want := "partition 0 of h, consumer group $Default: a reader of epoch 2 is attached, higher than 1"
	if refused == nil || refused.Error() != want {
		t.Errorf("attached again: %v, want %s", refused, want)
	}
}
