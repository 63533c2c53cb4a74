package pipeline

import (
	"cmp"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/strictyaml"
)

// Limits of assign.every.
const (
	minAssign = 10 * time.Millisecond
	maxAssign = time.Hour
)

// readAssign reads how fast partitions are acquired.
func (p *Pipeline) readAssign(n strictyaml.Node) {
	p.keyNodes.assign = &n
	n.Object(strictyaml.Keys{
		"every": func(n strictyaml.Node) { n.DurationIn(&p.config.AssignEvery, minAssign, maxAssign) },
		"burst": func(n strictyaml.Node) { n.Int(&p.config.AssignBurst, 1, maxPartitions) },
	})
}

// checkAssign checks assign against the keys partitions and lease, which may be shared.
func (p *Pipeline) checkAssign() {
	renew := cmp.Or(p.config.RenewEvery, p.LeaseFor()/3) // as in sluice.Config
	if n := p.keyNodes.assign; n != nil && p.Partitions == sluice.Balanced && p.config.AssignEvery > renew {
		n.Fail("every %v: with partitions: balanced it must not be above the %v between two renewals of a lease (lease.renew)", p.config.AssignEvery, renew)
	}
}
