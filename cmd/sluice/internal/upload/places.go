package upload

import (
	"sort"
	"sync"

	"github.com/sluice-go/sluice/cmd/sluice/internal/records"
)

// places remembers where each record stands that was yielded. Records that follow each other
// in a file take no memory. It is safe for concurrent use.
type places struct {
	mu   sync.Mutex
	n    int64 // records
	runs []placeRun
}

// placeRun is a run of records that follow each other.
type placeRun struct {
	first int64 // index of the first one
	at    records.Place
}

// add notes the place of the next record.
func (p *places) add(at records.Place) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.runs) == 0 || p.runs[len(p.runs)-1].place(p.n) != at {
		p.runs = append(p.runs, placeRun{p.n, at})
	}
	p.n++
}

// of returns the place of the record with an index, from 0.
func (p *places) of(index int64) records.Place {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := sort.Search(len(p.runs), func(i int) bool { return p.runs[i].first > index })
	return p.runs[n-1].place(index)
}

// place returns the place of a record of the run.
func (r *placeRun) place(index int64) records.Place {
	at := r.at
	at.Number += int(index - r.first)
	return at
}
