//go:build linux

package attack

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"sync"
)

// spoiledEvery: each record with a multiple of this number has no delay, cannot be
// mapped and becomes a dead letter. It is a prime, so that they go to all
// partitions.
const spoiledEvery = 101

// flight is the part of an event that is checked: its number and the values of
// its row.
type flight struct {
	N        int64  `json:"n"`
	Delay    *int64 `json:"delay"`
	Distance int64  `json:"distance"`
	Origin   string `json:"origin"`
}

// load makes records, numbered from 0, and counts those that were acknowledged.
type load struct {
	records []json.RawMessage // without a number; they repeat

	mu    sync.Mutex
	acked int64 // records 0 to acked-1 were
}

// record returns record number n: {"n":N, and the fields of a flight.
func (l *load) record(n int64) ([]byte, error) {
	body := l.records[n%int64(len(l.records))]
	if n%spoiledEvery == spoiledEvery-1 {
		fields := map[string]any{}
		if err := json.Unmarshal(body, &fields); err != nil {
			return nil, fmt.Errorf("record %d: %w", n, err)
		}
		delete(fields, "delay")
		var err error
		if body, err = json.Marshal(fields); err != nil {
			return nil, err
		}
	}
	return append(fmt.Appendf(nil, `{"n":%d,`, n), body[1:]...), nil
}

// file writes count records from first on.
func (l *load) file(path string, first, count int64) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	out := bufio.NewWriter(f)
	for n := first; n < first+count; n++ {
		line, err := l.record(n)
		if err != nil {
			return err
		}
		out.Write(line)
		out.WriteByte('\n')
	}
	if err := out.Flush(); err != nil {
		return err
	}
	return f.Close()
}

// acknowledged is the number of records that the hub has acknowledged.
func (l *load) acknowledged() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.acked
}

func (l *load) advance(n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acked += n
}
