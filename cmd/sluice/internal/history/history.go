// Package history checks what consumers say they did against what is in the
// database: from logs of real runs it finds events that were lost or doubled,
// took effect out of order, or were committed by an owner that had been taken
// over, and checkpoints that skipped or went back.
//
// Every consumer writes a log of its own ([Writer], an observer). A commit
// whose process died before it could say so is missing from the logs; so a
// claim may find the checkpoint further on than any log says, but nothing else
// may.
package history

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"sync"

	"github.com/sluice-go/sluice"
)

// Kind is what a [Record] says.
type Kind string

// The kinds of records. Sent, Effect and Letter come from whoever asks the log
// and the database at the end; all others from consumers, in the order in
// which they happened to each. Fenced, Unknown and Deposed tell a reader what
// went on; they prove nothing.
const (
	Sent      Kind = "sent"       // the log holds From+1 to To
	Claimed   Kind = "claimed"    // the checkpoint stood at To
	Committed Kind = "committed"  // it was moved From, To
	Redriven  Kind = "redriven"   // the dead letter To took effect
	Fenced    Kind = "fenced"     // a transaction that would have moved it From, To was refused
	Unknown   Kind = "unknown"    // the answer to the commit of From, To was lost
	Deposed   Kind = "lost lease" // by expiry or to another owner
	Effect    Kind = "effect"     // the event To has a row
	Letter    Kind = "letter"     // the event To has a dead letter
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

// Observe implements [sluice.Observer].
func (w *Writer) Observe(o sluice.Observation) {
	r := Record{Owner: o.Owner, Partition: o.Partition, Epoch: o.Epoch, From: o.From.Sequence, To: o.To.Sequence}
	switch o.Kind {
	case sluice.KindClaimed:
		r.Kind, r.From = Claimed, 0
	case sluice.KindCommitted:
		r.Kind = Committed
	case sluice.KindRedriven:
		r.Kind, r.From = Redriven, 0
	case sluice.KindFenced:
		r.Kind = Fenced
	case sluice.KindUnknown:
		r.Kind = Unknown
	case sluice.KindLost:
		r.Kind = Deposed
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

// Read hands the records of a log on, to [Checker.Add] for example. The last
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
