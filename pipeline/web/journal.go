package web

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/sluice-go/sluice/driver"
)

// journalEntry is an occurrence that an operator should see. Similar occurrences
// in quick succession are one entry.
type journalEntry struct {
	First     int64  `json:"first"` // Unix milliseconds
	Last      int64  `json:"last"`
	Kind      string `json:"kind"`
	Partition string `json:"partition,omitempty"`
	Sequence  *int64 `json:"sequence,omitempty"` // the event it is about
	Text      string `json:"text,omitempty"`
	Times     int    `json:"times"`
	Bad       bool   `json:"bad"`
}

const (
	// maxEntries is how many entries a journal holds.
	maxEntries = 40
	// mergeWithin is how long an entry counts more of its kind.
	mergeWithin = 5 * time.Second
)

// journal holds the newest entries, by when they began.
type journal struct{ entries []journalEntry }

// journaled are the kinds of observation that go into the journal; true for trouble.
var journaled = map[driver.ObservationKind]bool{
	driver.KindAcquired: false, driver.KindReleased: false, driver.KindRedriven: false,
	driver.KindLost: true, driver.KindFenced: true, driver.KindUnknown: true, driver.KindParked: true,
	driver.KindRedriveFailed: true, driver.KindHalted: true, driver.KindFailed: true, driver.KindHookFailed: true,
	driver.KindStalled: true, driver.KindResumed: false, driver.KindCopyFailed: true,
}

func (j *journal) note(o driver.Observation, now time.Time) {
	bad, ok := journaled[o.Kind]
	if !ok {
		return
	}
	kind, at := o.Kind.String(), now.UnixMilli()
	for i := range slices.Backward(j.entries) {
		e := &j.entries[i]
		if e.Kind != kind || e.Partition != o.Partition {
			continue
		}
		if e.Last < at-mergeWithin.Milliseconds() {
			break
		}
		e.Times++
		e.Last = at
		return
	}
	if len(j.entries) == maxEntries {
		j.entries = slices.Delete(j.entries, 0, 1)
	}
	e := journalEntry{First: at, Last: at, Kind: kind, Partition: strings.Clone(o.Partition), Text: reason(o.Err), Times: 1, Bad: bad}
	switch o.Kind {
	case driver.KindParked, driver.KindRedriven, driver.KindRedriveFailed:
		sequence := o.To.Sequence // a copy, so that observations don't escape to the heap
		e.Sequence = &sequence
	}
	j.entries = append(j.entries, e)
}

// list returns the entries; the one that occurred last is at the end.
func (j *journal) list() []journalEntry {
	list := append([]journalEntry{}, j.entries...)
	slices.SortStableFunc(list, func(a, b journalEntry) int { return cmp.Compare(a.Last, b.Last) })
	return list
}
