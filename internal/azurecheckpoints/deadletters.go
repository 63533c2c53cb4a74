package azurecheckpoints

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// PublishedDeadLetters is the table of dead letters beside [PublishedTable]: Topic, PartitionID,
// SequenceNumber, Offset, FailedAt, Error. Its key is (Topic, PartitionID), so it has one row for
// each, and the published code stores the event's partition key as PartitionID and leaves out
// FailedAt and Error.
const PublishedDeadLetters = "EventHubDeadLetter"

// mostError bounds the text of an error in bytes.
const mostError = 4096

// DeadLetter is a row of a table such as [PublishedDeadLetters]: it points to an event.
type DeadLetter struct {
	PartitionOrKey string // the published article stores the partition there, its code the partition key
	Sequence       int64
	Offset         string    // empty if it is not known
	FailedAt       time.Time // UTC, as SQL Server's datetime has no zone; zero if it is not known
	Error          string    // empty if it is not known; cut to 4,096 bytes
}

// ReadDeadLetters finds the dead letters of a topic in a table such as [PublishedDeadLetters],
// sorted by sequence number. The table is only read. A row that names no event is an error.
func ReadDeadLetters(ctx context.Context, db *sql.DB, table, topic string) ([]DeadLetter, error) {
	var list []DeadLetter
	_, err := eachRow(ctx, db, table, func(r *tableRow) error {
		if !strings.EqualFold(r.topic.String, topic) {
			return nil
		}
		d := DeadLetter{PartitionOrKey: r.partition.String, Sequence: r.sequence.Int64, Offset: offset(r.offset.String), Error: text(r.failure)}
		if !r.sequence.Valid || d.Sequence < 0 {
			return fmt.Errorf("has a row of partition %q without a sequence number: complete it, or delete it", d.PartitionOrKey)
		}
		var err error
		if d.FailedAt, err = moment(r.failedAt); err != nil {
			return fmt.Errorf("has a FailedAt that is no time, in the row of partition %q, event %d: %w", d.PartitionOrKey, d.Sequence, err)
		}
		list = append(list, d)
		return nil
	})
	slices.SortFunc(list, func(a, b DeadLetter) int {
		return cmp.Or(cmp.Compare(a.Sequence, b.Sequence), strings.Compare(a.PartitionOrKey, b.PartitionOrKey))
	})
	return list, err
}

// text returns what a driver returns for a text, cut to mostError.
func text(v any) string {
	var s string
	switch v := v.(type) {
	case string:
		s = v[:min(len(v), mostError)]
	case []byte:
		s = string(v[:min(len(v), mostError)])
	}
	return strings.TrimSpace(strings.ToValidUTF8(s, ""))
}

// layouts are those in which SQLite and MySQL return a time as a text.
var layouts = []string{time.RFC3339Nano, "2006-01-02 15:04:05.999999999", "2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05.999999999-07:00"}

// moment returns what a driver returns for a time.
func moment(v any) (time.Time, error) {
	if at, is := v.(time.Time); is {
		return at.UTC(), nil
	}
	s := text(v)
	if s == "" {
		if v == nil {
			return time.Time{}, nil
		}
		return time.Time{}, errors.New("the value is of another type")
	}
	for _, layout := range layouts {
		if at, err := time.Parse(layout, s); err == nil {
			return at.UTC(), nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is not read", s[:min(len(s), 40)])
}
