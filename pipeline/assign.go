package pipeline

import (
	"cmp"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/config/strictyaml"
)

// Limits of assign.every.
const (
	minAssign = 10 * time.Millisecond
	maxAssign = time.Hour
)

// readAssign reads how fast partitions are acquired.
func (r *reader) readAssign(n strictyaml.Node) {
	r.given.assign = &n
	n.Object(strictyaml.Keys{
		"every": func(n strictyaml.Node) { n.DurationIn(&r.config.AssignEvery, minAssign, maxAssign) },
		"burst": func(n strictyaml.Node) { n.Int(&r.config.AssignBurst, 1, maxPartitions) },
	})
}

// checkAssign checks assign against the keys partitions and lease, which may be shared.
func (r *reader) checkAssign() {
	renew := cmp.Or(r.config.RenewEvery, r.LeaseFor()/3) // as in sluice.Config
	if n := r.given.assign; n != nil && r.Partitions == sluice.Balanced && r.config.AssignEvery > renew {
		n.Fail("every %v: with partitions: balanced it must not be above the %v between two renewals of a lease (lease.renew)", r.config.AssignEvery, renew)
	}
}
