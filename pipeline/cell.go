package pipeline

import (
	"strings"
	"time"
	"unsafe"
)

// cell is the value of a column of an event, before it becomes an any: that costs an allocation for
// each value, which a target can save.
type cell struct {
	kind    cellKind
	shared  bool   // text is in the memory of the event, which nothing writes to
	text    string // of cellText
	integer int64
	time    time.Time
	other   any // nil for NULL
}

type cellKind uint8

const (
	cellOther cellKind = iota
	cellText
	cellInteger
	cellTime
)

// ownText returns a text as a cell.
func ownText(s string) cell { return cell{kind: cellText, text: s} }

// sharedText returns a part of an event as a cell. The cell keeps the whole event in memory.
func sharedText(b []byte) cell {
	return cell{kind: cellText, text: unsafe.String(unsafe.SliceData(b), len(b)), shared: true}
}

// value returns the cell's value, which may outlive the event.
func (c cell) value() any {
	if c.kind == cellText && c.shared {
		return strings.Clone(c.text)
	}
	return c.sharedValue()
}

// sharedValue returns the cell's value, which may keep the event in memory.
func (c cell) sharedValue() any {
	switch c.kind {
	case cellText:
		return c.text
	case cellInteger:
		return c.integer
	case cellTime:
		return c.time
	}
	return c.other
}

// boxing makes the value of a row from the cell of a column.
type boxing func(column int, c cell) any

func boxed(_ int, c cell) any       { return c.value() }
func boxedShared(_ int, c cell) any { return c.sharedValue() }
