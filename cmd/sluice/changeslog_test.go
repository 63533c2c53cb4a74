package main_test

import (
	"fmt"
	"math/rand/v2"
)

// rowChange is an event of the log.
type rowChange struct {
	n       int64 // its number in the log, and version
	id      string
	deletes bool
	code    string
	note    string // a text, null, or nothing
	late    int64  // nothing: 0
	mark    int64  // as late, of every event once it is known
	shared  bool   // the key is one of all partitions
	refused bool   // the code is that of a row in the way
	torn    bool   // it cannot be mapped
}

func (c *rowChange) op() string {
	if c.deletes {
		return "d"
	}
	return "u"
}

func (c *rowChange) json() string {
	n := fmt.Sprint(c.n)
	if c.torn {
		n = `"x"`
	}
	text := fmt.Sprintf(`{"op":%q,"id":%q,"n":%s,"code":%q`, c.op(), c.id, n, c.code)
	switch c.note {
	case "":
	case "NULL":
		text += `,"note":null`
	default:
		text += fmt.Sprintf(`,"note":%q`, c.note)
	}
	if c.late != 0 {
		text += fmt.Sprintf(`,"late":%d`, c.late)
	}
	if c.mark != 0 {
		text += fmt.Sprintf(`,"mark":%d`, c.mark)
	}
	return text + "}"
}

func sharedID(i int) string { return fmt.Sprint("shared", i) }

// changesLog is what is sent.
type changesLog struct {
	partitions [changePartitions][]*rowChange
	each       int // events of a partition in a round
	late       int // from this round on, processes are started with the column late
	n          int64
}

// newChangesLog makes the events of so many rounds.
func newChangesLog(r *rand.Rand, rounds, each int) *changesLog {
	l := &changesLog{each: each, late: rounds / 2}
	for round := range rounds {
		for p := range l.partitions {
			for len(l.partitions[p]) < (round+1)*each {
				late := round >= l.late+2 // when both were started again
				if room := (round+1)*each - len(l.partitions[p]); room > 1 && r.IntN(8) == 0 {
					l.partitions[p] = append(l.partitions[p], l.burst(r, late, min(room, 2+r.IntN(5)))...)
					continue
				}
				l.n++
				l.partitions[p] = append(l.partitions[p], l.next(r, p, late))
			}
		}
	}
	return l
}

// burst returns so many changes of two keys that no other event has. They set the same columns, and
// in every other burst have the same version. So a batch has several changes of a key, which one
// write takes, and no later batch hides which of them counted.
func (l *changesLog) burst(r *rand.Rand, late bool, size int) (list []*rowChange) {
	keys, version, noted, ties := [2]string{fmt.Sprintf("burst%d-a", l.n+1), fmt.Sprintf("burst%d-b", l.n+1)}, l.n+1, r.IntN(2) == 0, r.IntN(2) == 0
	for range size {
		l.n++
		c := &rowChange{n: l.n, id: keys[r.IntN(2)], deletes: r.IntN(3) == 0}
		c.code = fmt.Sprintf("%s/%d", c.id, l.n)
		if noted {
			c.note = fmt.Sprint("note ", l.n)
		}
		if late {
			c.late, c.mark = l.n, l.n
		}
		if ties {
			c.n = version
		}
		list = append(list, c)
	}
	return list
}

func (l *changesLog) next(r *rand.Rand, partition int, late bool) *rowChange {
	c := &rowChange{n: l.n, id: fmt.Sprintf("p%d-%d", partition, r.IntN(changeKeys))}
	if r.IntN(5) == 0 {
		c.shared, c.id = true, sharedID(r.IntN(sharedChangeKeys))
	}
	c.code = fmt.Sprintf("%s/%d", c.id, r.IntN(3))
	if late {
		c.mark = c.n
		if c.shared || r.IntN(2) == 0 {
			c.late = c.n
		}
	}
	switch r.IntN(20) {
	case 0, 1, 2:
		c.deletes = true
	case 3:
		c.torn = true
	case 4:
		c.refused, c.code = true, fmt.Sprint("taken", c.n)
	}
	switch {
	case c.shared || r.IntN(2) == 0:
		c.note = fmt.Sprint("note ", c.n)
	case r.IntN(5) == 0:
		c.note = "NULL"
	}
	return c
}

// refused are the events that need a row in their way.
func (l *changesLog) refused() (list []*rowChange) {
	for _, p := range l.partitions {
		for _, c := range p {
			if c.refused {
				list = append(list, c)
			}
		}
	}
	return list
}

// foldedRow is a row of the tables.
type foldedRow struct {
	n          int64
	code, note string
	late       int64
}

// foldedRows are a table.
type foldedRows map[string]*foldedRow

// apply applies an event by the rule of a table.
func (f foldedRows) apply(stage string, c *rowChange) {
	row := f[c.id]
	newer := stage == "newest" || stage == "versions"
	switch {
	case newer && row != nil && row.n > c.n, stage == "skipped" && row != nil && !c.deletes:
		return
	case c.deletes && stage != "versions":
		delete(f, c.id)
		return
	case row == nil:
		row = &foldedRow{note: "new"}
		f[c.id] = row
	}
	row.n, row.code = c.n, c.code
	late := c.late
	switch {
	case newer:
		late = c.mark // what an older event has is not known
		if stage == "versions" {
			row.note = c.op()
		}
	case c.note != "":
		row.note = c.note
	}
	if late != 0 {
		row.late = late
	}
}

// fold is what a table must have, without the keys of several partitions whose order is not known:
// that does not matter to versions, which has every event in the end.
func (l *changesLog) fold(stage string) foldedRows {
	f := foldedRows{}
	for _, p := range l.partitions {
		for _, c := range p {
			if !c.torn && (stage == "versions" || !c.refused && !c.shared) {
				f.apply(stage, c)
			}
		}
	}
	return f
}

// lastOf are the last events of a key in each partition that a table does not refuse.
func (l *changesLog) lastOf(id string) (list []*rowChange) {
	for _, p := range l.partitions {
		var last *rowChange
		for _, c := range p {
			if c.id == id && !c.torn && !c.refused {
				last = c
			}
		}
		if last != nil {
			list = append(list, last)
		}
	}
	return list
}

// newestOf is the one with the highest version.
func (l *changesLog) newestOf(id string) (newest *rowChange) {
	for _, c := range l.lastOf(id) {
		if newest == nil || c.n > newest.n {
			newest = c
		}
	}
	return newest
}

// sharedRow says why a row that several partitions change cannot be: it must be one of their
// events, whole; of updated the last of a partition, and of newest the one with the highest version
// unless that deletes.
func (l *changesLog) sharedRow(stage, id string, row *foldedRow) string {
	var of *rowChange
	for _, p := range l.partitions {
		for _, c := range p {
			if c.n == row.n {
				of = c
			}
		}
	}
	whole := foldedRows{}
	if of != nil {
		whole.apply(stage, of)
	}
	want := whole[id]
	switch {
	case of == nil || of.id != id || of.deletes || of.torn || of.refused:
		return "it is of none of its events"
	case row.code != want.code || row.note != want.note || want.late != 0 && row.late != want.late:
		return fmt.Sprintf("it is of several events; want %v", want)
	case stage == "updated":
		for _, c := range l.lastOf(id) {
			if c == of {
				return ""
			}
		}
		return "its event is the last of no partition"
	case stage == "newest":
		if newest := l.newestOf(id); newest != of && !newest.deletes {
			return fmt.Sprintf("event %d is newer", newest.n)
		}
	}
	return ""
}

// mayBeGone reports whether a delete can be what a key of several partitions has come to.
func (l *changesLog) mayBeGone(stage, id string) bool {
	last := l.lastOf(id)
	if stage == "newest" {
		newest := l.newestOf(id)
		return newest == nil || newest.deletes
	}
	for _, c := range last {
		if c.deletes {
			return true
		}
	}
	return len(last) == 0
}
