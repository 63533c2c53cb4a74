package eventhub

import (
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-go/sluice/driver"
)

// cpu is the processor time that the process has used.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkRead reads events of 1 KB from an emulator in the same process,
// batches of at most 1,000.
func BenchmarkRead(b *testing.B) {
	for _, receiver := range []Receiver{SDKReceiver, OwnReceiver} {
		for _, partitions := range []int{1, 4} {
			b.Run(fmt.Sprintf("receiver=%s/partitions=%d", receiver, partitions), func(b *testing.B) { benchmarkRead(b, receiver, partitions) })
		}
	}
}

func benchmarkRead(b *testing.B, receiver Receiver, partitions int) {
	const stored = 20_000
	br := newBroker(b, nil)
	br.receiver = receiver
	for p := range partitions {
		br.send(fmt.Sprint(p), 0, stored, 1000)
	}
	s := br.source(nil)
	b.SetBytes(1000)
	b.ReportAllocs()
	b.ResetTimer()
	began := cpu()
	var reads atomic.Int64
	var work sync.WaitGroup
	for p := range partitions {
		work.Go(func() {
			for left := b.N / partitions; left > 0; {
				r, err := s.Open(br.now, fmt.Sprint(p), driver.Origin, 1)
				if err != nil {
					b.Error(err)
					return
				}
				for n := min(left, stored); n > 0; {
					events, err := r.Read(br.now, min(n, 1000))
					if err != nil {
						b.Error(err)
						return
					}
					reads.Add(1)
					n -= len(events)
					left -= len(events)
				}
				r.Close(br.now)
			}
		})
	}
	work.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
	b.ReportMetric(float64(cpu()-began)/float64(b.N), "cpu-ns/op")
	b.ReportMetric(float64(b.N)/float64(reads.Load()), "events/read")
}

// BenchmarkBounds measures one management request.
func BenchmarkBounds(b *testing.B) {
	br := newBroker(b, nil)
	s := br.source(nil)
	for b.Loop() {
		if _, err := s.Bounds(br.now, "0"); err != nil {
			b.Fatal(err)
		}
	}
}
