package memory

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"
)

const mebibyte = 1 << 20

// partitionContext returns a context of one of the budget's partitions.
func partitionContext(t *testing.T, b *Budget) (context.Context, *Partition) {
	p := b.Open(mebibyte, nil)
	return NewContext(t.Context(), p), p
}

// TestFourMaximumEvents: each of four partitions holds what it has read and needs memory for an
// event of the largest size, of which the budget has room for one. All get it, one after the other.
func TestFourMaximumEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const largest = 24 * mebibyte
		b := New(40 * mebibyte)
		b.Reserve(largest)
		var partitions []*Partition
		for range 4 {
			_, p := partitionContext(t, b)
			partitions = append(partitions, p)
		}
		var done atomic.Int64
		for _, p := range partitions {
			for p.Read.Try(mebibyte) { // until nothing is left
			}
			go func() {
				ctx, _ := Begin(NewContext(t.Context(), p))
				if err := Grow(ctx, largest/2); err != nil {
					t.Error(err)
				}
				time.Sleep(time.Second)
				if err := Grow(ctx, largest/2); err != nil {
					t.Error(err)
				}
				Shrink(ctx, largest/2)
				time.Sleep(time.Second)
				p.Collect().Release()
				done.Add(1)
			}()
		}
		time.Sleep(time.Minute)
		if done.Load() != 4 {
			t.Errorf("%d of 4 events got memory", done.Load())
		}
		if used, limit := b.Shared(); used != limit {
			t.Errorf("%d bytes of %d are charged", used, limit)
		}
	})
}

// TestNoDeadlock: whatever partitions read, hold, decode and release, everything is granted at
// last, and what is charged never exceeds the budget.
func TestNoDeadlock(t *testing.T) {
	for seed := range uint64(50) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			partitions := 1 + random.IntN(20)
			largest := (1 + random.Int64N(30)) * mebibyte
			floors := int64(partitions) * (mebibyte + ReceivedFloor)
			b := New(floors + largest + random.Int64N(20*mebibyte))
			b.Reserve(largest)
			var held, peak, granted atomic.Int64 // as this test counts
			hold := func(n int64) {
				now := held.Add(n)
				for was := peak.Load(); now > was && !peak.CompareAndSwap(was, now); was = peak.Load() {
				}
			}
			var all sync.WaitGroup
			opened := make([]*Partition, partitions)
			for i := range opened {
				_, opened[i] = partitionContext(t, b)
			}
			for i, p := range opened {
				random := rand.New(rand.NewPCG(seed, uint64(2+i)))
				ctx := NewContext(t.Context(), p)
				all.Go(func() {
					defer p.Close()
					for range 50 {
						n := 1 + random.Int64N(mebibyte)
						for !p.Read.Try(n) {
							<-p.Read.Freed()
						}
						hold(n)
						done := func() { hold(-n); p.Read.Give(n) }
						if random.IntN(2) == 0 { // it stays while others are read
							all.Go(func() { time.Sleep(time.Duration(n)); done() })
							continue
						}
						ctx, _ := Begin(ctx)
						need := 1 + random.Int64N(largest)
						part := random.Int64N(need)
						for _, n := range []int64{part, need - part} {
							if err := Grow(ctx, n); err != nil {
								t.Error(err)
							}
							hold(n)
							time.Sleep(time.Duration(n))
						}
						kept := random.Int64N(need)
						hold(kept - need)
						Shrink(ctx, kept)
						time.Sleep(time.Duration(n))
						hold(-kept)
						p.Collect().Release()
						done()
						granted.Add(1)
					}
				})
			}
			all.Wait()
			if most := b.Limit(); peak.Load() > most {
				t.Errorf("seed %d: %d bytes held, the budget is %d", seed, peak.Load(), most)
			}
			if used := b.shared.Load(); used != 0 || b.floors.Load() != 0 {
				t.Errorf("seed %d: %d bytes and %d of floors are charged at the end", seed, used, b.floors.Load())
			}
		})
	}
}

// TestReadingWaitsForCharges: while a charge waits, reading ahead gets only what its floor has room
// for.
func TestReadingWaitsForCharges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(24 * mebibyte)
		b.Reserve(8 * mebibyte)
		first, p1 := partitionContext(t, b)
		second, p2 := partitionContext(t, b)
		third, p3 := partitionContext(t, b)
		large := func(ctx context.Context) context.Context {
			ctx, _ = Begin(ctx)
			if err := Grow(ctx, 8*mebibyte); err != nil {
				t.Error(err)
			}
			return ctx
		}
		large(first)  // of the pool
		large(second) // the reserve
		waited := false
		go func() { large(third); waited = true }()
		synctest.Wait()
		if waited {
			t.Fatal("24 MiB are charged beside floors to a budget of 24 MiB")
		}
		if !p3.Read.Try(mebibyte) {
			t.Error("the floor is refused")
		}
		if p3.Read.Try(1) {
			t.Error("reading ahead is granted while a charge waits")
		}
		p2.Collect().Release()
		synctest.Wait()
		if !waited {
			t.Error("the charge still waits although the reserve is free")
		}
		p1.Collect().Release()
		p3.Collect().Release()
		if !p3.Read.Try(1) {
			t.Error("reading ahead is refused although nothing is charged")
		}
	})
}

// TestBusyPartition: a partition that has charges never waits for another one, which might wait for
// it.
func TestBusyPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, p := partitionContext(t, New(8*mebibyte))
		one, _ := Begin(ctx)
		if err := Grow(one, 5*mebibyte); err != nil {
			t.Fatal(err)
		}
		two, _ := Begin(ctx)
		if err := Grow(two, 5*mebibyte); !errors.Is(err, ErrBusy) {
			t.Errorf("the second charge: %v", err)
		}
		p.Collect().Release()
		three, _ := Begin(ctx)
		if err := Grow(three, 5*mebibyte); err != nil {
			t.Error(err)
		}
		p.Collect().Release()
	})
}

// TestWaitEnds: a charge that waits leaves when its context ends, and those behind it go on.
func TestWaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(8 * mebibyte)
		ctx, p := partitionContext(t, b)
		one, _ := Begin(ctx)
		for range 2 { // the pool, and the reserve
			if err := Grow(one, 6*mebibyte); err != nil {
				t.Fatal(err)
			}
		}
		other, q := partitionContext(t, b)
		ended, end := context.WithCancel(other)
		ended, _ = Begin(ended)
		var err error
		go func() { err = Grow(ended, mebibyte) }()
		synctest.Wait()
		if b.waiting.Load() != 1 {
			t.Fatal("it does not wait")
		}
		end()
		synctest.Wait()
		if !errors.Is(err, context.Canceled) || b.waiting.Load() != 0 {
			t.Errorf("after its end: %v, %d wait", err, b.waiting.Load())
		}
		p.Collect().Release()
		q.Collect().Release()
		if b.shared.Load() != 0 || b.holder != nil {
			t.Errorf("%d bytes are charged at the end, token held: %v", b.shared.Load(), b.holder != nil)
		}
	})
}

// TestTryingNeverWaits: a charge of Trying gets memory, or ErrBusy at once.
func TestTryingNeverWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(8 * mebibyte)
		p := b.Trying()
		for range 2 {
			one, _ := Begin(NewContext(t.Context(), p))
			if err := Grow(one, 5*mebibyte); err != nil {
				t.Fatal(err)
			}
			if err := Grow(one, 5*mebibyte); !errors.Is(err, ErrBusy) {
				t.Errorf("10 MiB of 8: %v", err)
			}
			p.Collect().Release()
			if used, _ := b.Shared(); used != 0 {
				t.Errorf("%d bytes are charged at the end", used)
			}
		}
	})
}

// TestShort: floors above the budget are reported once.
func TestShort(t *testing.T) {
	b := New(3 * mebibyte)
	var partitions []*Partition
	for n := range 5 {
		partitions = append(partitions, b.Open(mebibyte, nil))
		if floors, short := b.Short(); short != (n == 2) || floors != int64(n+1)*(mebibyte+ReceivedFloor) {
			t.Errorf("%d partitions: floors of %d, reported %v", n+1, floors, short)
		}
	}
	for range 2 {
		for _, p := range partitions[1:] {
			p.Close()
		}
		partitions = partitions[:1]
		if _, short := b.Short(); short {
			t.Error("reported for one partition")
		}
	}
}

// TestNothingIsBounded: without a budget everything is granted.
func TestNothingIsBounded(t *testing.T) {
	var b *Budget
	p := b.Open(mebibyte, nil)
	ctx, c := Begin(NewContext(t.Context(), p))
	if err := Grow(ctx, math.MaxInt64); err != nil || c != nil {
		t.Error(err)
	}
	Shrink(ctx, 0)
	p.Collect().Release()
	p.Close()
}

// TestLower: the smallest limit that is stated holds, also one above the default.
func TestLower(t *testing.T) {
	b := New(100)
	for _, step := range []struct{ stated, want int64 }{{200, 200}, {300, 200}, {50, 50}} {
		if b.Lower(step.stated); b.Limit() != step.want {
			t.Errorf("after %d the limit is %d, want %d", step.stated, b.Limit(), step.want)
		}
	}
}

func TestDefaultLimit(t *testing.T) {
	const none = math.MaxInt64
	for _, c := range []struct {
		name            string
		runtime, cgroup int64
		want            int64
	}{
		{"no limit", none, none, DefaultLimit},
		{"GOMEMLIMIT", 460 << 20, none, 230 << 20},
		{"cgroup", none, 1000 << 20, 450 << 20},
		{"both", 400 << 20, 1000 << 20, 200 << 20},
		{"a smaller cgroup", 900 << 20, 500 << 20, 225 << 20},
		{"tiny", 8 << 20, none, smallest},
	} {
		if got := limitOf(c.runtime, c.cgroup); got>>20 != c.want>>20 {
			t.Errorf("%s: %d MiB, want %d", c.name, got>>20, c.want>>20)
		}
	}
}

func TestCgroupLimit(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	for _, c := range []struct {
		name  string
		files fstest.MapFS
		want  int64
	}{
		{"none", fstest.MapFS{}, math.MaxInt64},
		{"version 2", fstest.MapFS{
			"proc/self/cgroup":                    file("0::/pod/app\n"),
			"sys/fs/cgroup/pod/app/memory.max":    file("max\n"),
			"sys/fs/cgroup/pod/memory.max":        file("536870912\n"),
			"sys/fs/cgroup/memory.max":            file("1073741824\n"),
			"sys/fs/cgroup/other/app2/memory.max": file("1\n"),
		}, 512 << 20},
		{"version 2, the group is the root of the mount", fstest.MapFS{
			"proc/self/cgroup":         file("0::/../kubepods/pod\n"),
			"sys/fs/cgroup/memory.max": file("268435456\n"),
		}, 256 << 20},
		{"version 1", fstest.MapFS{
			"proc/self/cgroup": file("5:cpu:/\n4:hugetlb,memory:/pod/app\n0::/\n"),
			"sys/fs/cgroup/memory/pod/app/memory.limit_in_bytes": file("9223372036854771712\n"),
			"sys/fs/cgroup/memory/pod/memory.limit_in_bytes":     file("134217728\n"),
		}, 128 << 20},
		{"version 1 without a limit", fstest.MapFS{
			"proc/self/cgroup":                           file("4:memory:/\n"),
			"sys/fs/cgroup/memory/memory.limit_in_bytes": file("9223372036854771712\n"),
		}, math.MaxInt64},
	} {
		if got := cgroupLimit(c.files); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}
