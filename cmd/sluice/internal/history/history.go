// Package history compares the consumers' logs of real runs with the database. It
// finds events that were lost or duplicated, took effect out of order, or were
// committed by an owner after another had taken over, and checkpoints that skipped
// events or moved backwards.
//
// Every consumer writes its own log ([Writer], an observer). A commit whose process
// ended before it could log it is missing from the logs. So a claim may find the
// checkpoint further than any log says; anything else is a finding.
package history

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"sync"

	"github.com/sluice-go/sluice/driver"
)

// Kind is the kind of a [Record].
type Kind string

// The kinds of records. Sent, Void, Effect and DeadLetter come from the caller, which reads
// the log and the database at the end; all others from consumers, each in its own
// order. Fenced, Unknown and Deposed are for the reader of a log; they are not
// checked.
const (
	Sent       Kind = "sent"       // the log holds From+1 to To
	Void       Kind = "void"       // of these, From+1 to To are no events
	Claimed    Kind = "claimed"    // the checkpoint stood at To
	Committed  Kind = "committed"  // it was moved From, To
	Redriven   Kind = "redriven"   // the dead letter To took effect
	Fenced     Kind = "fenced"     // a transaction that would have moved it From, To was refused
	Unknown    Kind = "unknown"    // the answer to the commit of From, To was lost
	LostLease  Kind = "lost lease" // by expiry or to another owner
	Effect     Kind = "effect"     // the event To has a row
	DeadLetter Kind = "letter"     // the event To has a dead letter
)

// Record is one line of a log.
type Record struct {
	Kind      Kind   `json:"kind"`
	Owner     string `json:"owner,omitempty"`
	Partition string `json:"partition"`
	Epoch     int64  `json:"epoch,omitempty"`
	From      int64  `json:"from,omitempty"`
	To        int64  `json:"to"`
}

// Writer is an observer that writes a consumer's log as JSON lines. It is safe
// for concurrent use.
type Writer struct {
	mu  sync.Mutex
	out io.Writer
	err error
}

// NewWriter makes a writer. Each record is one call of out's Write, so that a
// log survives the death of its process up to the last record.
func NewWriter(out io.Writer) *Writer { return &Writer{out: out} }

// Observe implements [driver.Observer].
func (w *Writer) Observe(o driver.Observation) {
	r := Record{Owner: o.Owner, Partition: o.Partition, Epoch: o.Epoch, From: o.From.Sequence, To: o.To.Sequence}
	switch o.Kind {
	case driver.KindClaimed:
		r.Kind, r.From = Claimed, 0
	case driver.KindCommitted:
		r.Kind = Committed
	case driver.KindRedriven:
		r.Kind, r.From = Redriven, 0
	case driver.KindFenced:
		r.Kind = Fenced
	case driver.KindUnknown:
		r.Kind = Unknown
	case driver.KindLost:
		r.Kind = LostLease
	default:
		return
	}
	line, err := json.Marshal(r)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		_, err = w.out.Write(append(line, '\n'))
	}
	if w.err == nil {
		w.err = err
	}
}

// Err returns the first error of writing.
func (w *Writer) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Read passes the records of a log to a function, for example [Checker.Add]. The last
// line may be torn, as that of a process that was killed; any other bad line is
// an error.
func Read(in io.Reader, add func(Record)) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	var torn error
	for n := 1; lines.Scan(); n++ {
		if torn != nil {
			return torn
		}
		var r Record
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			torn = fmt.Errorf("line %d: %w", n, err)
			continue
		}
		add(r)
	}
	return lines.Err()
}
