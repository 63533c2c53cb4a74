package feed

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"hash/maphash"

	"github.com/sluice-go/sluice/internal/records"
)

// window gathers records into groups until it is full or has lingered.
type window struct {
	feed   *Feed
	lanes  []chan *group
	turn   int // partition of the next record without a key
	byName map[string]*group
	groups []*group // in order of their first record
	count  int
	bytes  int
}

func (w *window) add(ctx context.Context, r records.Record) error {
	g, err := w.group(r)
	if err != nil {
		return fmt.Errorf("%s: %w", r.Place, err)
	}
	g.records = append(g.records, r)
	w.count++
	w.bytes += len(r.Body)
	if w.count >= w.feed.cfg.Window || w.bytes >= windowBytes {
		return w.flush(ctx)
	}
	return nil
}

// group finds the record's group, or begins it. The same key or partition
// always gets the same lane.
func (w *window) group(r records.Record) (*group, error) {
	f := w.feed
	var fresh group
	var name string
	if f.cfg.KeyField == "" {
		name = f.partitions[w.turn]
		fresh = group{partition: name, lane: w.turn % len(w.lanes)}
		w.turn = (w.turn + 1) % len(f.partitions)
	} else {
		k, err := key(r.Body, f.cfg.KeyField)
		if err != nil {
			return nil, err
		}
		name = k
		fresh = group{key: k, lane: int(maphash.String(f.seed, k) % uint64(len(w.lanes)))}
	}
	if g := w.byName[name]; g != nil {
		return g, nil
	}
	if w.byName == nil {
		w.byName = make(map[string]*group)
	}
	w.byName[name] = &fresh
	w.groups = append(w.groups, &fresh)
	return &fresh, nil
}

// flush hands the groups to their lanes.
func (w *window) flush(ctx context.Context) error {
	for _, g := range w.groups {
		select {
		case w.lanes[g.lane] <- g:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	w.byName, w.groups, w.count, w.bytes = nil, nil, 0, 0
	return nil
}

// maxKey is the longest partition key that Event Hubs takes, in characters.
const maxKey = 128

// key returns the partition key in a field of a JSON object: a text as it is,
// a number or a boolean as it is written.
func key(body []byte, field string) (string, error) {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(body, &object); err != nil {
		return "", fmt.Errorf("the key's field %s: not an object", field)
	}
	raw, ok := object[field]
	if !ok || bytes.Equal(raw, []byte("null")) {
		return "", fmt.Errorf("the key's field %s is missing", field)
	}
	k := string(raw)
	switch raw[0] {
	case '{', '[':
		return "", fmt.Errorf("the key's field %s is neither text nor number", field)
	case '"':
		if err := json.Unmarshal(raw, &k); err != nil {
			return "", fmt.Errorf("the key's field %s: %w", field, err)
		}
	}
	if k == "" {
		return "", fmt.Errorf("the key's field %s is empty", field)
	}
	if n := len([]rune(k)); n > maxKey {
		return "", fmt.Errorf("the key's field %s has %d characters, a partition key has at most %d", field, n, maxKey)
	}
	return k, nil
}
