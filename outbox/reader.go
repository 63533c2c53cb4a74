package outbox

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/clock"
	"github.com/sluice-go/sluice/internal/property"
)

// Open implements [driver.Source]. Epochs are not compared: any number of readers read beside each
// other.
func (s *Source) Open(ctx context.Context, partition string, after driver.Position, _ int64) (driver.Reader, error) {
	bounded, cancel := s.bounded(ctx)
	defer cancel()
	r, err := s.open(bounded, partition, after)
	if err != nil {
		return nil, s.failed(bounded, "open partition "+partition, err)
	}
	return r, nil
}

func (s *Source) open(ctx context.Context, partition string, after driver.Position) (*reader, error) {
	p, err := s.partition(ctx, partition)
	if err != nil {
		return nil, err
	}
	if after.Sequence < driver.Origin.Sequence {
		return nil, fmt.Errorf("partition %s has no position %v to begin after", partition, after)
	}
	var st state
	if err := s.sql.state.one(ctx, s.db, args{"part": p}, st.fields()...); err != nil {
		return nil, err
	}
	here, err := s.tagAt(ctx, p, st, after.Sequence)
	if err != nil {
		return nil, err
	}
	if err := s.compare(ctx, p, partition, after, st, here); err != nil {
		return nil, err
	}
	after.Offset = here.offset()
	r := &reader{
		source: s, p: p, partition: partition, incarnation: st.incarnation, position: after, rows: firstRows,
		poll: clock.Backoff{Min: s.cfg.PollMin, Max: s.cfg.PollMax},
	}
	r.life, r.end = context.WithCancel(context.Background())
	return r, nil
}

// firstRows is how many rows a reader asks for before it knows how large they are.
const firstRows = 64

// reader implements [driver.Reader].
type reader struct {
	source      *Source
	p           int
	partition   string
	incarnation string
	position    driver.Position // of the last event returned
	rows        int             // how many rows have about [driver.ReadBytes]
	poll        clock.Backoff
	err         error // ends the reader

	life context.Context // until Close
	end  context.CancelFunc
}

var errClosed = errors.New("outbox: the reader is closed")

// Close implements [driver.Reader].
func (r *reader) Close(context.Context) error {
	r.end()
	return nil
}

// Read implements [driver.Reader].
func (r *reader) Read(ctx context.Context, most int) ([]*driver.Event, error) {
	working, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.life, cancel)()
	for r.err == nil {
		events, fresh, err := r.look(working, most)
		switch {
		case r.life.Err() != nil:
			r.err = errClosed
		case ctx.Err() != nil:
			return nil, r.source.failed(ctx, "read partition "+r.partition, ctx.Err())
		case err != nil:
			r.err = r.source.failed(ctx, "read partition "+r.partition, err)
		case len(events) > 0:
			r.poll.Reset()
			r.position = events[len(events)-1].Position()
			return events, nil
		case fresh: // numbered, or by another reader
		default:
			_ = r.source.clock.Sleep(working, r.poll.Next()) // looks at working again
		}
	}
	return nil, r.err
}

// look returns the next events. If there are none it numbers rows, and reports whether there were
// any.
func (r *reader) look(ctx context.Context, most int) (events []*driver.Event, fresh bool, err error) {
	if err := ctx.Err(); err != nil {
		return nil, false, err
	}
	if err := r.source.deleteDue(ctx, r.p); err != nil {
		return nil, false, err
	}
	events, fresh, err = r.fetch(ctx, most)
	if err == nil && len(events) == 0 && fresh {
		_, _, err = r.source.number(ctx, r.p)
	}
	return events, fresh, err
}

// fetch reads numbered rows after the position, and reports whether there are rows without a
// number.
func (r *reader) fetch(ctx context.Context, most int) (events []*driver.Event, fresh bool, err error) {
	s := r.source
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	rows, err := s.sql.read.query(ctx, s.db, args{"part": r.p, "n": r.position.Sequence, "limit": min(most, r.rows)})
	if err != nil {
		return nil, false, err
	}
	defer rows.Close()
	size, found, gap := 0, false, int64(0)
	var st state
	var before tag // of the row at the position
	for rows.Next() {
		var here sql.NullInt64
		var unnumbered int64
		var row row
		if err := rows.Scan(append(append(st.fields(), &here, &unnumbered), row.fields()...)...); err != nil {
			return nil, false, err
		}
		if !found {
			fresh, found, before = unnumbered > 0, true, tag(here.Int64)
		}
		if !row.n.Valid {
			break
		}
		if next := r.position.Sequence + 1 + int64(len(events)); row.n.Int64 != next {
			gap = row.n.Int64
			break
		}
		e := row.event(r.partition)
		if len(events) > 0 && size+e.Size() > driver.ReadBytes {
			break
		}
		events, size = append(events, e), size+e.Size()
	}
	// The rows are closed before anything else is asked: the database may have one connection.
	if err := cmp.Or(rows.Err(), rows.Close()); err != nil {
		return nil, false, err
	}
	if !found {
		return nil, false, fmt.Errorf("table %s_partitions has no row for the partition: restore it", s.cfg.Table)
	}
	if err := r.unchanged(ctx, st, before); err != nil {
		return nil, false, err
	}
	switch next := r.position.Sequence + 1; {
	case gap > 0:
		return nil, false, r.missing(next+int64(len(events)), gap)
	case len(events) == 0 && st.head > next:
		return nil, false, r.missing(next, st.head)
	case len(events) > 0:
		r.rows = min(max(driver.ReadBytes/(size/len(events)+1), 1), maxBatch)
	}
	return events, fresh, nil
}

// unchanged returns an error if the table is not the one that was read so far.
func (r *reader) unchanged(ctx context.Context, st state, here tag) error {
	if st.incarnation != r.incarnation {
		return errors.New("the table was deleted and created again: opening it again")
	}
	if r.position.Sequence == st.first-1 {
		here = st.firstTag
	}
	if here == 0 && parseTag(r.position.Offset) != 0 && r.position.Sequence >= st.first {
		return r.missing(r.position.Sequence, r.position.Sequence+1)
	}
	return r.source.compare(ctx, r.p, r.partition, r.position, st, here)
}

// missing is the error for numbers from next on to before found, whose rows are gone.
func (r *reader) missing(next, found int64) error {
	return &driver.RetentionError{
		Partition: r.partition, After: next - 1, First: found, Held: true,
		Hint: "their rows are missing in table " + r.source.cfg.Table + ", or have other numbers: find what deleted or changed them",
	}
}

// row is a row as it is read.
type row struct {
	n, tag, created                                sql.NullInt64
	key, message, correlation, content, properties sql.NullString
	body                                           []byte
}

func (w *row) fields() []any {
	return []any{&w.n, &w.tag, &w.created, &w.key, &w.message, &w.correlation, &w.content, &w.properties, &w.body}
}

// event returns the row's event. One whose properties cannot be read is returned with what there
// is: a single writer's mistake must not hold the others up.
func (w *row) event(partition string) *driver.Event {
	e := &driver.Event{
		Partition: partition, Sequence: w.n.Int64, Offset: tag(w.tag.Int64).offset(),
		Enqueued: time.UnixMicro(w.created.Int64).UTC(),
		Key:      w.key.String, EmptyKey: w.key.Valid && w.key.String == "",
		MessageID: w.message.String, CorrelationID: w.correlation.String, ContentType: w.content.String,
		Body: w.body,
	}
	e.Created = e.Enqueued
	var err error
	if e.Properties, err = decodeProperties(w.properties.String); err != nil {
		e.Undecodable = err.Error()
	}
	return e
}

// decodeProperties reads what [property.Encode] has written, or plain JSON: there a number is an
// int64 if it is whole, else a float64.
func decodeProperties(text string) (map[string]any, error) {
	properties, err := property.Decode([]byte(text))
	if err == nil {
		return properties, nil
	}
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	var plain map[string]any
	if decoder.Decode(&plain) != nil {
		return nil, fmt.Errorf("column properties: %w", err)
	}
	if _, more := decoder.Token(); more != io.EOF {
		return nil, errors.New("column properties: there is more than one JSON object")
	}
	for name, value := range plain {
		if n, is := value.(json.Number); is {
			kind := "float64"
			if _, err := n.Int64(); err == nil {
				kind = "int64"
			}
			plain[name] = map[string]string{kind: n.String()}
		}
	}
	data, err := json.Marshal(plain)
	if err == nil {
		properties, err = property.Decode(data)
	}
	if err != nil {
		return nil, fmt.Errorf("column properties: %w", err)
	}
	return properties, nil
}
