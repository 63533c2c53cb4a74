package upload

import (
	"iter"
	"sort"
	"sync"

	"github.com/sluice-go/sluice/cmd/sluice/internal/records"
	"github.com/sluice-go/sluice/sender"
)

// places remembers where each record stands that was yielded, and its number in the input. Records
// that follow each other in a file take no memory. It is safe for concurrent use.
type places struct {
	mu   sync.Mutex
	n    int64 // records
	runs []placeRun
}

// placeRun is a run of records that follow each other.
type placeRun struct {
	first  int64 // index of the first one
	number int64 // its number
	begin  records.Place
}

// add notes the place and number of the next record.
func (p *places) add(at records.Place, number int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.runs) > 0 {
		last := p.runs[len(p.runs)-1]
		if last.place(p.n) == at && last.number+p.n-last.first == number {
			p.n++
			return
		}
	}
	p.runs = append(p.runs, placeRun{p.n, number, at})
	p.n++
}

// lookup returns the place and number of the record with an index, from 0.
func (p *places) lookup(index int64) (records.Place, int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.runs[p.find(index)]
	return r.place(index), r.number + index - r.first
}

// next returns the number after that of the last record.
func (p *places) next() int64 {
	if p.n == 0 {
		return 1
	}
	_, number := p.lookup(p.n - 1)
	return number + 1
}

// find returns the run that has the record with an index.
func (p *places) find(index int64) int {
	return sort.Search(len(p.runs), func(i int) bool { return p.runs[i].first > index }) - 1
}

// records yields the records with the indices of a range: the number of records that follow each
// other, and the place of the first of them.
func (p *places) records(indices sender.IndexRange) iter.Seq2[records.Place, sender.IndexRange] {
	return func(yield func(records.Place, sender.IndexRange) bool) {
		for indices.First <= indices.Last {
			p.mu.Lock()
			i := p.find(indices.First)
			r, last := p.runs[i], indices.Last
			if i+1 < len(p.runs) {
				last = min(last, p.runs[i+1].first-1)
			}
			p.mu.Unlock()
			offset := r.number - r.first
			if !yield(r.place(indices.First), sender.IndexRange{First: indices.First + offset, Last: last + offset}) {
				return
			}
			indices.First = last + 1
		}
	}
}

// numbers returns the numbers of the records with these indices.
func (p *places) numbers(indices []sender.IndexRange) (list []sender.IndexRange) {
	for _, r := range indices {
		for _, run := range p.records(r) {
			if n := len(list); n > 0 && list[n-1].Last+1 == run.First {
				list[n-1].Last = run.Last
				continue
			}
			list = append(list, run)
		}
	}
	return list
}

// place returns the place of a record of the run.
func (r *placeRun) place(index int64) records.Place {
	at := r.begin
	at.Number += int(index - r.first)
	return at
}
