package blobstore_test

import (
	"fmt"
	"testing"

	"github.com/sluice-go/sluice/blobstore"
	"github.com/sluice-go/sluice/driver"
)

// The benchmarks measure the number of requests more than anything else:
// Azurite answers each in about a millisecond, Azure in five to ten.

func BenchmarkAcquireRelease(b *testing.B) {
	s := newPlace(b).open(b)
	for b.Loop() {
		if err := s.Leases().Release(b.Context(), acquire(b, s, "a")); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRenew(b *testing.B) {
	s := newPlace(b).open(b)
	l := acquire(b, s, "a")
	for b.Loop() {
		if err := s.Leases().Renew(b.Context(), l, blobstore.MaxLease); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkAdvance moves a checkpoint with 300 ranges done after it.
func BenchmarkAdvance(b *testing.B) {
	s := newPlace(b).open(b)
	l, err := s.Leases().Acquire(b.Context(), group, "0", "a", blobstore.MaxLease, 0)
	if err != nil {
		b.Fatal(err)
	}
	claim(b, s, l)
	n := int64(0)
	for b.Loop() {
		n++
		var done []driver.SequenceRange
		for i := range int64(300) {
			done = append(done, driver.SequenceRange{First: n + 2 + 10*i, Last: n + 5 + 10*i})
		}
		if err := s.Advance(b.Context(), l, "incarnation 1", positionAt(n), done); err != nil {
			b.Fatal(err)
		}
		if n%1000 == 0 {
			if err := s.Leases().Renew(b.Context(), l, blobstore.MaxLease); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// BenchmarkPark stores 100 dead letters at a time, each time in a partition that
// has 1,000 already.
func BenchmarkPark(b *testing.B) {
	s := newPlace(b).open(b)
	partition := 0
	for b.Loop() {
		b.StopTimer()
		partition++
		name := fmt.Sprint(partition)
		if err := s.Park(b.Context(), dead(name, numbers(0, 1000)...)); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		if err := s.Park(b.Context(), dead(name, numbers(1000, 1100)...)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(100*partition)/b.Elapsed().Seconds(), "letters/s")
}

func numbers(from, to int64) (list []int64) {
	for n := from; n < to; n++ {
		list = append(list, n)
	}
	return list
}

// BenchmarkDue looks for retries where there is none among 1,000 dead letters.
func BenchmarkDue(b *testing.B) {
	s := newPlace(b).open(b)
	if err := s.Park(b.Context(), dead("0", numbers(0, 1000)...)); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if due, err := s.Due(b.Context(), group, "0", 100); err != nil || len(due) > 0 {
			b.Fatal(due, err)
		}
	}
}
