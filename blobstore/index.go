package blobstore

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"

	"github.com/sluice-go/sluice/driver"
)

// entry is a dead letter in its partition's index: all but body and
// properties, which have a blob of their own.
type entry struct {
	ID            int64                   `json:"id"`
	Sequence      int64                   `json:"sequence_number"`
	Incarnation   string                  `json:"incarnation,omitempty"`
	Offset        string                  `json:"offset,omitempty"`
	Enqueued      time.Time               `json:"enqueued,omitzero"`
	Key           string                  `json:"key,omitempty"`
	MessageID     string                  `json:"message_id,omitempty"`
	CorrelationID string                  `json:"correlation_id,omitempty"`
	ContentType   string                  `json:"content_type,omitempty"`
	FailedAt      time.Time               `json:"failed_at,omitzero"`
	Error         string                  `json:"error,omitempty"`
	Attempts      int                     `json:"attempts"`
	Status        driver.DeadLetterStatus `json:"status"`
	NextAttempt   time.Time               `json:"next_attempt,omitzero"`
	Body          string                  `json:"body,omitempty"`   // last part of its blob's name; empty if it is not stored
	Copied        bool                    `json:"copied,omitempty"` // to another system
	Head          int64                   `json:"head,omitempty"`   // bytes of that blob before the body: the properties
}

// newEntry makes the entry of a dead letter, without ID and body.
func newEntry(d *driver.DeadLetter) entry {
	v := &d.Event
	e := entry{
		Sequence: v.Sequence, Incarnation: clean(d.Incarnation), Offset: clean(v.Offset), Enqueued: written(v.Enqueued),
		Key: clean(v.Key), MessageID: clean(v.MessageID), CorrelationID: clean(v.CorrelationID), ContentType: clean(v.ContentType),
	}
	e.setFailure(d)
	return e
}

// setFailure records how the event failed, and the status.
func (e *entry) setFailure(d *driver.DeadLetter) {
	e.FailedAt, e.Error, e.Attempts = written(d.FailedAt), clean(d.Error), d.Attempts
	e.mark(d.Status, d.NextAttempt)
}

func (e *entry) parked() driver.ParkedEvent {
	return driver.ParkedEvent{ID: e.ID, Position: driver.Position{Sequence: e.Sequence, Offset: e.Offset}}
}

func (e *entry) mark(status driver.DeadLetterStatus, next time.Time) {
	e.Status, e.NextAttempt = status, time.Time{}
	if status == driver.StatusRetry {
		e.NextAttempt = written(next)
	}
}

func (e *entry) deadLetter(group driver.Group, partition string) driver.DeadLetter {
	return driver.DeadLetter{
		ID: e.ID, Group: group, Incarnation: e.Incarnation, FailedAt: e.FailedAt, Error: e.Error, Attempts: e.Attempts,
		Status: e.Status, NextAttempt: e.NextAttempt, HasBody: e.Body != "",
		Event: driver.Event{
			Partition: partition, Sequence: e.Sequence, Offset: e.Offset, Enqueued: e.Enqueued,
			Key: e.Key, MessageID: e.MessageID, CorrelationID: e.CorrelationID, ContentType: e.ContentType,
		},
	}
}

// index is the blob with a partition's dead letters, as it was read.
type index struct {
	group     driver.Group
	partition string
	name      string
	etag      azcore.ETag // empty if it is not there
	now       time.Time   // by the server's clock, to the second
	entries   []entry     // by id
}

// maxIndex bounds what is read as an index: more than 100,000 dead letters.
const maxIndex = 128 << 20

// open reads a partition's index; a missing one is empty.
func (s *Store) open(ctx context.Context, group driver.Group, partition string) (*index, error) {
	r := &index{group: group, partition: partition}
	var err error
	if r.name, err = s.join(group, deadLettersFolder, escape(partition)); err != nil {
		return nil, err
	}
	content, got, err := s.download(ctx, r.name, maxIndex)
	if bloberror.HasCode(err, bloberror.BlobNotFound) {
		r.now = dateOf(err)
		return r, nil
	}
	if err != nil {
		return nil, safeError(err)
	}
	r.etag, r.now = *got.ETag, got.Date.UTC()
	if err := json.Unmarshal(content, &r.entries); err != nil {
		return nil, fmt.Errorf("blob %s: %w", r.name, err)
	}
	return r, nil
}

// download reads a blob of at most so many bytes. Errors are the SDK's.
func (s *Store) download(ctx context.Context, name string, most int64) ([]byte, blob.DownloadStreamResponse, error) {
	got, err := s.client.NewBlobClient(name).DownloadStream(ctx, nil)
	if err != nil {
		return nil, got, err
	}
	body := got.NewRetryReader(ctx, nil)
	defer body.Close()
	if got.ETag == nil || got.Date == nil {
		return nil, got, errors.New("answer of Azure Storage without the blob's version or time")
	}
	content, err := io.ReadAll(io.LimitReader(body, most+1))
	if err == nil && int64(len(content)) > most {
		err = fmt.Errorf("blob %s: more than %d MB", name, most>>20)
	}
	return content, got, err
}

// save writes the index if the blob still has the version that was read. The metadata has the
// number of dead letters marked for redrive and the time of the first, so that Due reads the index
// only if one is due, and the number of those that are not marked as copied, likewise for Uncopied.
// A program that does not know those marks writes neither: all are copied again.
func (s *Store) save(ctx context.Context, r *index) error {
	slices.SortFunc(r.entries, func(a, b entry) int { return cmp.Compare(a.ID, b.ID) })
	content, err := json.Marshal(r.entries)
	if err != nil {
		return err
	}
	m := metadata{}
	retries, uncopied, next := 0, 0, time.Time{}
	for i := range r.entries {
		e := &r.entries[i]
		if !e.Copied {
			uncopied++
		}
		if e.Status == driver.StatusRetry {
			if retries++; retries == 1 || e.NextAttempt.Before(next) {
				next = e.NextAttempt
			}
		}
	}
	m.number("letters", int64(len(r.entries)))
	m.number("retries", int64(retries))
	m.number("uncopied", int64(uncopied))
	m.time("next", next)
	conditions := &blob.ModifiedAccessConditions{IfMatch: &r.etag}
	if anyVersion := azcore.ETagAny; r.etag == "" {
		conditions = &blob.ModifiedAccessConditions{IfNoneMatch: &anyVersion}
	}
	_, err = s.client.NewBlockBlobClient(r.name).Upload(ctx, streaming.NopCloser(bytes.NewReader(content)), &blockblob.UploadOptions{
		Metadata:         m,
		HTTPHeaders:      &blob.HTTPHeaders{BlobContentType: &jsonType},
		AccessConditions: &blob.AccessConditions{ModifiedAccessConditions: conditions},
	})
	return safeError(err)
}

var jsonType = "application/json"

// change reads a partition's index, changes it, and saves it if change says
// that there is something to save: repeatedly while it is changed
// meanwhile.
func (s *Store) change(ctx context.Context, group driver.Group, partition string, change func(ctx context.Context, r *index) (bool, error)) error {
	name, err := s.join(group, deadLettersFolder, escape(partition))
	if err != nil {
		return err
	}
	done, err := s.locks.take(ctx, name)
	if err != nil {
		return err
	}
	defer done()
	for range maxTries {
		r, err := s.open(ctx, group, partition)
		if err != nil {
			return err
		}
		changed, err := change(ctx, r)
		if err != nil || !changed {
			return err
		}
		if err := s.save(ctx, r); !errors.Is(err, errChanged) {
			return err
		}
	}
	return fmt.Errorf("blob %s is changed constantly: make sure that nothing but Sluice writes to it", name)
}

// identity of a dead letter in its partition.
type identity struct {
	sequence    int64
	incarnation string
}

func identityOf(d *driver.DeadLetter) identity {
	return identity{d.Event.Sequence, clean(d.Incarnation)}
}

// places returns the places of the entries, by identity.
func (r *index) places() map[identity]int {
	at := make(map[identity]int, len(r.entries))
	for i := range r.entries {
		at[identity{r.entries[i].Sequence, r.entries[i].Incarnation}] = i
	}
	return at
}

// findID returns the place of an entry, -1 if there is none.
func (r *index) findID(id int64) int {
	return slices.IndexFunc(r.entries, func(e entry) bool { return e.ID == id })
}

// has reports whether an entry has this body.
func (r *index) has(body string) bool {
	return slices.ContainsFunc(r.entries, func(e entry) bool { return e.Body == body })
}

// add gives an entry its id, adds it, and returns its place.
func (r *index) add(e entry) int {
	e.ID = deadLetterID(r.partition, e.Sequence, e.Incarnation)
	for r.findID(e.ID) >= 0 {
		e.ID++ // the IDs of two incarnations collide
	}
	r.entries = append(r.entries, e)
	return len(r.entries) - 1
}

// clean makes text storable in JSON, which is UTF-8.
func clean(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

// written returns a time that JSON can hold: years that it cannot, which only a broken sender
// writes, become the nearest one that it can.
func written(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	t = t.UTC()
	switch y := t.Year(); {
	case y < 1:
		return time.Date(1, 1, 2, 0, 0, 0, 0, time.UTC)
	case y > 9999:
		return time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
	}
	return t
}

// IDs of dead letters are computed from their identity: from the highest bit down 35 bits of
// sequence number, 12 of partition and 16 of incarnation. Therefore they rise with the sequence
// number until it reaches 2³⁵, and contain the partition.
const (
	sequenceBits    = 35
	partitionBits   = 12
	incarnationBits = 16
	numbered        = 1<<(partitionBits-1) - 1 // partitions 0 to numbered-1 have a code of their own
)

func deadLetterID(partition string, sequence int64, incarnation string) int64 {
	id := sequence & (1<<sequenceBits - 1)
	id = id<<partitionBits | partitionCode(partition)
	return id<<incarnationBits | hashOf(incarnation, 1<<incarnationBits)
}

// partitionCode is a partition's number plus one, or for any other name a hash
// above all of those.
func partitionCode(partition string) int64 {
	if n, err := strconv.Atoi(partition); err == nil && n >= 0 && n < numbered && strconv.Itoa(n) == partition {
		return int64(n) + 1
	}
	return 1<<(partitionBits-1) + hashOf(partition, 1<<(partitionBits-1))
}

// partitionOf is the partition of an id, if that has a code of its own.
func partitionOf(id int64) (string, bool) {
	code := id >> incarnationBits & (1<<partitionBits - 1)
	return strconv.FormatInt(code-1, 10), id > 0 && code > 0 && code <= numbered
}

func hashOf(text string, below int64) int64 {
	h := fnv.New64a()
	h.Write([]byte(text))
	return int64(h.Sum64() % uint64(below))
}
