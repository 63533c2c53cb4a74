package storebench

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/driver"
)

// Dedup measures a step of 1,000 events with stamps of several origins (0: none),
// whose watermarks are ten steps behind. The step does nothing else.
func Dedup[Tx any, S driver.TxStore[Tx]](b *testing.B, open func(b *testing.B) S) {
	const events, behind = 1000, 10
	for _, origins := range []int64{0, 1, 32} {
		b.Run(fmt.Sprintf("origins=%d", origins), func(b *testing.B) {
			s := open(b)
			lease := driver.Lease{Group: group, Partition: "0", Owner: "a", Epoch: 1}
			if _, err := s.Claim(b.Context(), lease, incarnation); err != nil {
				b.Fatal(err)
			}
			seen, at := make([]driver.DedupState, origins), driver.Unset
			for n := int64(0); b.Loop(); n++ {
				for i := range seen {
					each := events / origins
					low := (n - behind) * each
					seen[i] = driver.DedupState{
						Origin: fmt.Sprintf("flights@0123456789abcdef/%d", i), Epoch: 1, Low: low, Top: (n + 1) * each, Forget: low, At: time.Now(),
						IDs: fmt.Sprintf("0:%d", n*each) + strings.Repeat(",2", int(each)-1),
					}
				}
				to := driver.Position{Sequence: (n + 1) * events}
				if err := s.Commit(b.Context(), driver.Step{Lease: lease, From: at, To: to, Dedup: seen}, nil); err != nil {
					b.Fatal(err)
				}
				at = to
			}
			rows, err := s.ReadDedup(b.Context(), group, "0")
			if err != nil || int64(len(rows)) > 2*behind*origins {
				b.Errorf("%d rows are left, %v", len(rows), err)
			}
		})
	}
}
