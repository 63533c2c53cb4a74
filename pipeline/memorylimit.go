package pipeline

import (
	"github.com/sluice-go/sluice/internal/config/strictyaml"
	"github.com/sluice-go/sluice/internal/memory"
)

// Limits of memory_limit.
const (
	minMemory = 16 << 20
	maxMemory = 1 << 40
)

// readMemoryLimit reads memory_limit: the budget of the process for what senders make it hold.
func (r *reader) readMemoryLimit(n strictyaml.Node) {
	r.given.memoryLimit = &n
	n.SizeIn(&r.memoryLimit, minMemory, maxMemory)
}

// checkMemoryLimit checks that the largest body that is allowed leaves half of memory_limit to the
// rest.
func (r *reader) checkMemoryLimit() {
	if most := r.body.mostMemory(); r.memoryLimit > 0 && most > int64(r.memoryLimit)/2 {
		r.given.memoryLimit.Fail("one event may need %d MiB, three times source.format.max_size and once source.claim_check.max_size: write at least %dMiB, or lower them",
			most>>20, (2*most+1<<20-1)>>20)
	}
}

// mostMemory returns how many bytes the decoding of one event may take at most.
func (b *bodyReader) mostMemory() int64 {
	most := b.format.MostMemory()
	if b.claim != nil {
		most += b.claim.MostBytes()
	}
	return most
}

// limitMemory applies memory_limit to the budget of the process, and keeps room in it for one body
// of the largest size.
func (p *Pipeline) limitMemory() {
	budget := memory.Process()
	if p.memoryLimit > 0 {
		budget.Lower(int64(p.memoryLimit))
	}
	if most := p.body.mostMemory(); most > 0 {
		budget.Reserve(most)
	}
}
