//go:build linux

package attack

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
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

// send sends records, a tenth of the plan's at once and then at its rate, until
// the plan's are sent and enough is closed. A file that was not acknowledged
// whole is sent again: to the hub those are other events.
func (w *world) send(ctx context.Context, enough <-chan struct{}) error {
	first := int64(w.Plan.Events / 10)
	if err := w.sendFile(ctx, first, 0); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-enough:
			left := int64(w.Plan.Events) - w.load.acknowledged()
			if left <= 0 {
				return nil
			}
			if err := w.sendFile(ctx, left, 0); err != nil {
				return err
			}
		default:
			// About two seconds of records.
			if err := w.sendFile(ctx, int64(2*w.Plan.Rate), w.Plan.Rate); err != nil {
				return err
			}
		}
	}
}

// sendFile sends the next count records by `sluice send` until all of them are
// acknowledged.
func (w *world) sendFile(ctx context.Context, count int64, rate int) error {
	path := filepath.Join(w.Dir, "records.ndjson")
	if err := w.load.file(path, w.load.acknowledged(), count); err != nil {
		return err
	}
	args := []string{w.Binary, "send", "--hub", "flights"}
	if rate > 0 {
		args = append(args, "--rate", fmt.Sprint(rate))
	}
	for try := 0; ctx.Err() == nil; try++ {
		w.sends++
		p, err := launch(w.Dir, fmt.Sprintf("send-%05d", w.sends), w.env(w.sender), append(args, path)...)
		if err != nil {
			return err
		}
		if err := p.wait(ctx); err != nil {
			p.end(os.Kill)
			<-p.done
			return nil
		}
		switch code := p.code(); {
		case code == 0:
			w.load.advance(count)
			return nil
		case code != 1 || try > 100:
			return fmt.Errorf("sluice send: exit code %d: %s", code, tail(p.stderr()))
		}
		sleep(ctx, 200*time.Millisecond)
	}
	return nil
}
