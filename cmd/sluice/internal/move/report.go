package move

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/cmd/sluice/internal/checkpoint"
	"github.com/sluice-go/sluice/cmd/sluice/internal/term"
	"github.com/sluice-go/sluice/internal/azurecheckpoints"
	"github.com/sluice-go/sluice/internal/humanize"
)

// Report says what is known of the seam between two consumers.
type Report struct {
	Direction string    `json:"direction"` // to sluice, or back
	Other     string    `json:"other"`     // where the other consumer keeps its positions
	Group     string    `json:"group"`
	Applied   bool      `json:"applied"` // false: a dry run
	Time      time.Time `json:"at"`
	Consumer  Liveness  `json:"consumer"` // the one that is moved from
	Waited    bool      `json:"waited"`   // until it had stopped
	Seams     []*Seam   `json:"partitions"`
	Missing   []string  `json:"missing,omitempty"` // partitions without a checkpoint to move
	Notes     []string  `json:"notes,omitempty"`
}

// Seam is what is known of the seam in one partition. Numbers are sequence numbers.
type Seam struct {
	Partition string     `json:"partition"`
	Old       *int64     `json:"old"` // the last event that the old consumer has done, -1 before the first; null if only OldOffset is known
	OldOffset string     `json:"old_offset,omitempty"`
	OldAt     *time.Time `json:"old_at,omitempty"` // when it was stored
	End       int64      `json:"end"`              // the newest event when the partition was looked at
	Start     int64      `json:"start"`            // the first event of the new consumer
	Replaced  *int64     `json:"replaced,omitempty"`
	Fenced    string     `json:"fenced,omitempty"`
	Already   bool       `json:"already,omitempty"` // an earlier run has moved the partition
	Now       *int64     `json:"now,omitempty"`     // the new consumer's checkpoint, if it has begun
	Letters   Letters    `json:"dead_letters"`
	Effects   *Sides     `json:"effects,omitempty"`
	Verdict   string     `json:"verdict"` // planned, proved, unknown
	Why       []string   `json:"why,omitempty"`
}

// The verdicts on a seam.
const (
	planned  = "planned"
	proved   = "proved"
	notKnown = "unknown"
)

// Letters counts the dead letters of a partition. Read is the sum of the others.
type Letters struct {
	Read     int64 `json:"read"`
	Imported int64 `json:"imported"`
	There    int64 `json:"already_there"`
	Again    int64 `json:"read_again,omitempty"` // their events are after the checkpoint
	Settled  int64 `json:"settled,omitempty"`    // an earlier run has moved the partition, and they are not there
	Open     int64 `json:"open,omitempty"`       // back: dead letters that stay in the pipeline's store
	Gone     int64 `json:"-"`                    // of those imported: retention has removed the event
}

// Sides is what the pipeline's table has on both sides of a seam.
type Sides struct {
	Earlier int64  `json:"before"`          // rows of events before the seam
	Last    *int64 `json:"last,omitempty"`  // the last of these events
	Later   int64  `json:"after"`           // rows of events after the seam
	First   *int64 `json:"first,omitempty"` // the first of these events
	Why     string `json:"unknown,omitempty"`
}

func newSeam(c azurecheckpoints.Checkpoint, end int64) *Seam {
	s := &Seam{Partition: c.Partition, OldOffset: c.Offset, End: end, Verdict: planned}
	if c.Sequence >= 0 || c.Origin {
		s.Old = &c.Sequence
	}
	if !c.Updated.IsZero() {
		s.OldAt = &c.Updated
	}
	return s
}

// planned takes what a move does, or has done.
func (s *Seam) planned(m checkpoint.Move) {
	s.Start, s.Fenced, s.End = m.To.Sequence+1, m.Fenced, max(s.End, m.End)
	if m.Begun {
		s.Replaced = &m.From.Sequence
	}
}

// already takes what an earlier run has done.
func (s *Seam) already(p *partition) {
	s.Already, s.Start = true, p.ours.Began.After+1
	s.doubt(p.doubt)
}

func (s *Seam) doubt(why string) {
	if why != "" {
		s.Why = append(s.Why, why)
	}
}

// count counts the dead letters of the partition.
func (s *Seam) count(list []letter) {
	for _, l := range list {
		s.Letters.Read++
		switch l.fate {
		case fateThere:
			s.Letters.There++
		case fateSettled:
			s.Letters.Settled++
		case fateAgain:
			s.Letters.Again++
		case fatePointer:
			s.Letters.Gone++
			s.Letters.Imported++
		default:
			s.Letters.Imported++
		}
	}
	if n := s.Letters.Settled; n > 0 {
		s.doubt(fmt.Sprintf("%s moved before and not in the store: redriven since, or never imported", humanize.Plural(n, "dead letter was", "dead letters were")))
	}
	if n := s.Letters.Gone; n > 0 {
		s.doubt(humanize.Plural(n, "dead letter has", "dead letters have") + " no event any more: retention has removed it")
	}
}

// stored takes what the store has after the move.
func (s *Seam) stored(p *partition, ours sluice.Checkpoint) {
	if ours.Position.Sequence > ours.Began.After {
		s.Now = &ours.Position.Sequence
	}
	if s.Verdict = proved; len(s.Why) > 0 {
		s.Verdict = notKnown
	}
}

// conclude lowers the verdicts if the other consumer may still run.
func (r *Report) conclude() {
	if !r.Applied || r.Consumer.State == Stopped {
		return
	}
	for _, s := range r.Seams {
		s.Verdict = notKnown
		s.doubt("the old consumer's state is " + string(r.Consumer.State))
	}
}

// WriteTo writes the report as a text.
func (r *Report) WriteTo(w io.Writer) (int64, error) {
	var b strings.Builder
	if r.Direction == back {
		fmt.Fprintf(&b, "from sluice, group %s, to %s, %s\n", r.Group, r.Other, r.Time.Format(time.RFC3339))
	} else {
		fmt.Fprintf(&b, "from %s to sluice, group %s, %s\n", r.Other, r.Group, r.Time.Format(time.RFC3339))
	}
	fmt.Fprintf(&b, "old consumer: %s: %s\n\n", r.Consumer.State, r.Consumer.Seen)
	t := term.NewTable("PARTITION", "LAST DONE", "END OF LOG", "NEW START", "NOW AT", "DEAD LETTERS", "EFFECTS", "SEAM")
	for _, s := range r.Seams {
		t.Add(s.Partition, s.old(), humanize.Count(s.End), s.start(), s.now(), s.Letters.String(), s.Effects.String(), s.Verdict)
	}
	if _, err := t.WriteTo(&b); err != nil {
		return 0, err
	}
	b.WriteString("\n")
	for _, s := range r.Seams {
		for _, why := range s.Why {
			fmt.Fprintf(&b, "partition %s: %s\n", s.Partition, why)
		}
		if s.Effects != nil && s.Effects.Why != "" {
			fmt.Fprintf(&b, "partition %s: effects unknown: %s\n", s.Partition, s.Effects.Why)
		}
	}
	if len(r.Missing) > 0 {
		fmt.Fprintf(&b, "no checkpoint of the old consumer, so source.start applies: partition %s\n", strings.Join(r.Missing, ", "))
	}
	for _, note := range r.Notes {
		fmt.Fprintln(&b, note)
	}
	if !r.Applied {
		b.WriteString("nothing was changed: add --apply\n")
	}
	n, err := io.WriteString(w, b.String())
	return int64(n), err
}

func (s *Seam) old() string {
	switch {
	case s.Old == nil:
		return "offset " + humanize.Shorten(s.OldOffset, 40)
	case *s.Old < 0:
		return "none"
	}
	return humanize.Count(*s.Old)
}

func (s *Seam) start() string {
	text := humanize.Count(s.Start)
	switch {
	case s.Already:
		text += " (already)"
	case s.Fenced != "":
		text += " (" + s.Fenced + " is fenced)"
	}
	return text
}

func (s *Seam) now() string {
	if s.Now == nil {
		return "-"
	}
	return humanize.Count(*s.Now)
}

// String names the counts that are not 0.
func (l Letters) String() string {
	var parts []string
	for _, c := range []struct {
		n    int64
		name string
	}{{l.Imported, "imported"}, {l.There, "there"}, {l.Again, "read again"}, {l.Settled, "settled"}, {l.Open, "open"}} {
		if c.n > 0 {
			parts = append(parts, humanize.Count(c.n)+" "+c.name)
		}
	}
	return cmp.Or(strings.Join(parts, ", "), "-")
}

func (a *Sides) String() string {
	switch {
	case a == nil:
		return "-"
	case a.Why != "":
		return "unknown"
	}
	return fmt.Sprintf("%s before, %s after", humanize.Count(a.Earlier), humanize.Count(a.Later))
}
