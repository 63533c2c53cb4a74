package cosmos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/sluice-go/sluice/driver"
)

// Stored is what a container has of a document.
type Stored struct {
	Found  bool
	Source *Source // that the document records; nil: none
}

const (
	// maxLookupFailures is how often in a row the lookups of documents are repeated without
	// an answer for any of them.
	maxLookupFailures = 10
	// absentWait is the wait before documents that are absent are read a second time: with
	// the consistency levels Session and below, a replica may lag.
	absentWait = time.Second
)

// Lookup reads documents by their ids and partition keys, whose other fields are ignored,
// in bulk and within [Config.RU]. What fails is retried, as long as the account answers
// some of it. An absent document is read twice. Documents must be looked up by a sink that
// writes none.
func (s *Sink) Lookup(ctx context.Context, documents []Document) ([]Stored, error) {
	stored := make([]Stored, len(documents))
	all := make([]int, len(documents))
	for i := range all {
		all[i] = i
	}
	if err := s.lookupAll(ctx, documents, all, stored); err != nil {
		return nil, err
	}
	var absent []int
	for i := range stored {
		if !stored[i].Found {
			absent = append(absent, i)
		}
	}
	if len(absent) == 0 {
		return stored, nil
	}
	if err := pause(ctx, absentWait); err != nil {
		return nil, err
	}
	return stored, s.lookupAll(ctx, documents, absent, stored)
}

// lookupAll looks up the documents at the given indexes, until each has an answer.
func (s *Sink) lookupAll(ctx context.Context, documents []Document, left []int, stored []Stored) error {
	for failures := 0; len(left) > 0; {
		failed, wait, err := s.lookupOnce(ctx, documents, left, stored)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case len(failed) < len(left):
			failures = 0
		default:
			failures++
		}
		if err != nil && (failures == maxLookupFailures || errors.Is(err, driver.ErrRejected)) {
			return err
		}
		if left = failed; len(left) > 0 {
			if err := pause(ctx, max(wait, min(100*time.Millisecond<<failures, 10*time.Second))); err != nil {
				return err
			}
		}
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// lookupOnce returns the indexes of the documents without an answer, the longest wait that
// the account asks for, and one of the errors.
func (s *Sink) lookupOnce(ctx context.Context, documents []Document, indexes []int, stored []Stored) (failed []int, wait time.Duration, err error) {
	var mu sync.Mutex
	var waiting sync.WaitGroup
	waiting.Add(len(indexes))
	for _, i := range indexes {
		d := &documents[i]
		s.submit(&record{
			ctx: ctx, doc: Document{ID: d.ID, PartitionKey: d.PartitionKey, Body: []byte("{}")}, lookup: &stored[i],
			done: func(result driver.WriteResult) {
				defer waiting.Done()
				if result.Err == nil {
					return
				}
				mu.Lock()
				defer mu.Unlock()
				if err == nil || !errors.Is(err, driver.ErrRejected) {
					err = result.Err
				}
				if retry, ok := errors.AsType[*driver.RetryError](result.Err); ok {
					wait = max(wait, retry.After)
				}
				failed = append(failed, i)
			},
		})
	}
	waiting.Wait()
	return failed, wait, err
}

// answerLookup stores the answer to a lookup. It returns false if op is no answer.
func (r *record) answerLookup(op *operation) bool {
	switch {
	case op.status == http.StatusNotFound && op.sub == 0:
		return true
	case outcomeOf(op.status, op.sub) != written:
		return false
	}
	found := Stored{Found: true}
	if !members(op.body, func(name, value []byte) {
		if string(name) == StampProperty {
			found.Source = parseSource(value)
		}
	}) {
		op.status = http.StatusBadGateway // not a document: an error of the account
		return false
	}
	*r.lookup = found
	return true
}

// Supersedes reports whether a conditional write of an event leaves a document as it is,
// because the document records the event itself or a newer one. known is false if the two
// cannot be compared: they are of different partitions or logs.
func (s *Source) Supersedes(event *Source) (supersedes, known bool) {
	if !s.comparable(event) {
		return false, false
	}
	return s.Sequence >= event.Sequence, true
}

// Expiry is when a container's documents expire.
type Expiry struct {
	// Enabled says that documents may expire: those with a property ttl after as many
	// seconds, the others after Default, 0: never.
	Enabled bool
	Default time.Duration
}

// Expiry reads the container's time to live. Containers without it ignore a document's ttl.
func (s *Sink) Expiry(ctx context.Context) (Expiry, error) {
	var container struct {
		TTL *int64 `json:"defaultTtl"`
	}
	if _, e := s.get(ctx, "colls", &container, nil); e != nil {
		return Expiry{}, e
	}
	switch ttl := container.TTL; {
	case ttl == nil || *ttl == 0:
		return Expiry{}, nil
	case *ttl < -1 || *ttl > maxTTL:
		return Expiry{}, s.badAnswer(fmt.Errorf("a default time to live of %d s", *ttl))
	default:
		return Expiry{Enabled: true, Default: max(0, time.Duration(*ttl)*time.Second)}, nil
	}
}

// maxTTL is Azure's limit, in seconds.
const maxTTL = 1<<31 - 1

// Of returns after what time since its last write a document with this body expires; 0:
// never.
func (x Expiry) Of(body []byte) time.Duration {
	if !x.Enabled {
		return 0
	}
	after := x.Default
	members(body, func(name, value []byte) {
		var ttl int64
		if string(name) == "ttl" && json.Unmarshal(value, &ttl) == nil && ttl <= maxTTL {
			after = max(0, time.Duration(ttl)*time.Second)
		}
	})
	return after
}
