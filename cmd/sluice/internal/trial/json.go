package trial

import (
	"bytes"
	"encoding/json"
	"io"

	"github.com/sluice-go/sluice/pipeline"
)

// line is an event as a line of JSON.
type line struct {
	Place     string            `json:"place,omitempty"` // in its file
	Partition *string           `json:"partition,omitempty"`
	Sequence  *int64            `json:"sequence,omitempty"`
	Outcome   string            `json:"outcome"`
	Route     int               `json:"route,omitempty"` // from 1
	Table     string            `json:"table,omitempty"`
	Rows      []json.RawMessage `json:"rows,omitempty"`
	Error     string            `json:"error,omitempty"`
}

// WriteJSON writes an event as one line of JSON.
func WriteJSON(w io.Writer, e *Sample) error {
	l := &line{Place: e.Place, Outcome: e.outcome(), Table: e.Table}
	if e.Place == "" {
		l.Partition, l.Sequence = &e.Event.Partition, &e.Event.Sequence
	}
	if e.Kind != "" {
		l.Route = e.Route + 1
	}
	if e.Err != nil {
		l.Error = e.Err.Error()
	}
	for i := range e.Rows {
		l.Rows = append(l.Rows, rowJSON(&e.Rows[i]))
	}
	var b bytes.Buffer
	lines := json.NewEncoder(&b)
	lines.SetEscapeHTML(false)
	if err := lines.Encode(l); err != nil {
		return err
	}
	_, err := w.Write(b.Bytes())
	return err
}

// outcome is what becomes of the event, in one word.
func (s *Sample) outcome() string {
	switch {
	case s.Err != nil:
		return "dead_letter"
	case s.Skipped:
		return "skipped"
	case s.Cleared:
		return "cleared"
	case s.Kind != "insert":
		return s.Kind
	case len(s.Rows) > 0 && s.Rows[0].Deleted:
		return "deleted"
	}
	return "rows"
}

// rowJSON is a row, without what the event does not have. A value that is wrong is an object with
// its error.
func rowJSON(r *pipeline.TriedRow) json.RawMessage {
	b := []byte("{")
	for i := range r.Values {
		v := &r.Values[i]
		if v.Missing {
			continue
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		name, _ := json.Marshal(v.Name)
		b = append(append(b, name...), ':')
		if v.Err != nil {
			text, _ := json.Marshal(v.Err.Error())
			b = append(append(append(b, `{"error":`...), text...), '}')
			continue
		}
		b = append(b, v.JSON()...)
	}
	return append(b, '}')
}
