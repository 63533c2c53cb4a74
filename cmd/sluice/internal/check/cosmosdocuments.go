package check

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/sluice-go/sluice/internal/partitionkey"
)

// docID is a document that the checks write.
type docID struct {
	id     string
	values []partitionkey.Value
}

// removeDocuments deletes each document that may exist.
func (s *cosmosSystem) removeDocuments(ctx context.Context) error {
	s.mu.Lock()
	list := s.docs
	s.mu.Unlock()
	left := make([]error, len(list))
	places := make(chan struct{}, 8)
	var deleting sync.WaitGroup
	for i, d := range list {
		places <- struct{}{}
		deleting.Go(func() {
			defer func() { <-places }()
			if err := s.remove(ctx, d); err != nil {
				left[i] = fmt.Errorf("document %s: %w", d.id, err)
			}
		})
	}
	deleting.Wait()
	left = slices.DeleteFunc(left, func(err error) bool { return err == nil })
	if n := len(left); n > 3 {
		left = append(left[:3], fmt.Errorf("and %d more", n-3))
	}
	return errors.Join(left...)
}

func (s *cosmosSystem) remove(ctx context.Context, d docID) error {
	a, err := s.client.do(ctx, http.MethodDelete, resource{"docs", d.id}, map[string]string{"x-ms-documentdb-partitionkey": d.key()}, nil)
	if err != nil || a.status == http.StatusNotFound {
		return err
	}
	return a.err()
}

// document returns the id of a new document, which may exist from then on.
func (s *cosmosSystem) document() docID {
	d := s.newID()
	s.mayExist(d)
	return d
}

// newID returns an id that no document has had.
func (s *cosmosSystem) newID() docID {
	id := fmt.Sprintf("sluice-check-%s-%d", s.opts.ID, s.numbers.Add(1))
	return docID{id, s.key(id)}
}

// mayExist notes documents that must be deleted in the end.
func (s *cosmosSystem) mayExist(d ...docID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.docs = append(s.docs, d...)
}

// key returns the partition key of a document: each component is the document's id.
func (s *cosmosSystem) key(id string) []partitionkey.Value {
	values := make([]partitionkey.Value, len(s.definition.PartitionKey.Paths))
	for i := range values {
		values[i] = partitionkey.String(id)
	}
	return values
}

func (d docID) key() string { return string(partitionkey.AppendJSON(nil, d.values)) }

// body is the document of a version, with its partition key at the container's paths.
func (s *cosmosSystem) body(d docID, version int) []byte {
	doc := map[string]any{"id": d.id, "sluiceCheck": s.opts.ID, "version": version}
	for _, path := range s.definition.PartitionKey.Paths {
		at := doc
		parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
		for _, part := range parts[:len(parts)-1] {
			below, ok := at[unquotePart(part)].(map[string]any)
			if !ok {
				below = map[string]any{}
				at[unquotePart(part)] = below
			}
			at = below
		}
		at[unquotePart(parts[len(parts)-1])] = d.id
	}
	text, _ := json.Marshal(doc) // maps of texts and numbers
	return text
}

// unquotePart is a part of a path without the quotation marks that it may have.
func unquotePart(part string) string { return strings.Trim(part, `"`) }

// upsert writes a document in a request of its own.
func (s *cosmosSystem) upsert(ctx context.Context, d docID, version int) (answer, error) {
	return success(s.client.do(ctx, http.MethodPost, resource{kind: "docs"}, s.upsertHeader(d), s.body(d, version)))
}

func (s *cosmosSystem) upsertHeader(d docID) map[string]string {
	return map[string]string{"x-ms-documentdb-partitionkey": d.key(), "x-ms-documentdb-is-upsert": "True"}
}

// stored reads the version of a document, -1 if it does not exist.
func (s *cosmosSystem) stored(ctx context.Context, d docID) (version int, a answer, err error) {
	var doc struct{ Version int }
	a, err = s.client.do(ctx, http.MethodGet, resource{"docs", d.id}, map[string]string{"x-ms-documentdb-partitionkey": d.key()}, nil)
	switch {
	case err != nil:
		return 0, a, err
	case a.status == http.StatusNotFound:
		return -1, a, nil
	case !a.ok():
		return 0, a, a.err()
	}
	err = json.Unmarshal(a.body, &doc)
	return doc.Version, a, err
}
