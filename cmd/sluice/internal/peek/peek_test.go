package peek

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/sluicetest"
)

// memory is a log in memory.
type memory struct {
	*sluicetest.Hub
	silent string // a partition whose readers return nothing
}

func (m memory) Open(ctx context.Context, partition string, after driver.Position, epoch int64) (driver.Reader, error) {
	reader, err := m.Hub.Open(ctx, partition, after, epoch)
	if partition == m.silent && err == nil {
		m.Silence(partition)
	}
	return reader, err
}

func (memory) Close(context.Context) error { return nil }

// looking is a log of two partitions, each with so many events, and a look at it.
func looking(perPartition int, silent string) (*sluicetest.Hub, *Log, *Config, *[]string) {
	hub := sluicetest.NewHub(sluice.Group{Namespace: "n", Topic: "flights", Name: "g"}, 2)
	for i := range perPartition {
		for _, p := range []string{"0", "1"} {
			hub.Append(p, sluicetest.Bodies(fmt.Sprintf(`{"n":%d}`, i))...)
		}
	}
	shown := &[]string{}
	cfg := &Config{Limit: 3, Scan: 1000, Log: slog.New(slog.DiscardHandler), Searched: func() {}, Waiting: func() {}}
	cfg.Show = func(s Seen) error {
		*shown = append(*shown, fmt.Sprintf("%s/%d", s.Partition, s.Sequence))
		return nil
	}
	return hub, &Log{Noun: "hub", Groups: []string{"g"}, Open: func(string) (Source, error) { return memory{hub, silent}, nil }}, cfg, shown
}

func TestALogThatFallsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, log, cfg, _ := looking(5, "1")
		began := time.Now()
		_, err := Run(t.Context(), log, cfg)
		if err == nil || !strings.Contains(err.Error(), "hub flights, partition 1: nothing came within 30s after event 1, although the log has events up to 4") || time.Since(began) > time.Minute {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

func TestInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, log, cfg, shown := looking(5, "1")
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if _, err := Run(ctx, log, cfg); err == nil || err.Error() != "interrupted: not all of the events were looked at" || fmt.Sprint(*shown) != "[0/2 0/3 0/4]" {
			t.Errorf("%v: %v", *shown, err)
		}
	})
}

// TestFollow follows a log whose readers return nothing, until a consumer takes a partition.
func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub, log, cfg, shown := looking(2, "")
		cfg.Follow, cfg.Limit = true, 1
		ended := make(chan error, 1)
		go func() {
			_, err := Run(t.Context(), log, cfg)
			ended <- err
		}()
		synctest.Wait()
		hub.Silence("0")
		hub.Append("0", sluicetest.Bodies("{}")...)
		time.Sleep(2 * followPatience)
		synctest.Wait()
		if fmt.Sprint(*shown) != "[1/1 0/2]" {
			t.Errorf("shown: %v", *shown)
		}
		if _, err := hub.Open(t.Context(), "0", driver.Position{Sequence: 1}, 7); err != nil { // disconnects readers without an epoch
			t.Fatal(err)
		}
		if err := <-ended; err == nil || !strings.Contains(err.Error(), "hub flights, partition 0: cannot be read in the consumer group g (a consumer reads in it): create a group to look with") {
			t.Errorf("ended with %v", err)
		}
	})
}

func TestKept(t *testing.T) {
	event := func(second, n int) *driver.Event {
		return &driver.Event{Partition: "0", Sequence: int64(n), Enqueued: noon.Add(time.Duration(second) * time.Second)}
	}
	for newest, want := range map[bool]string{true: "97 98 99 ", false: "0 1 2 "} {
		k := kept{limit: 3, newest: newest}
		for i := range 100 {
			e := event(i*37%100, i*37%100)
			if newest || k.wants(e) {
				if err := k.add([]*driver.Event{e}); err != nil {
					t.Fatal(err)
				}
			}
		}
		got := ""
		for _, e := range k.sorted() {
			got += fmt.Sprint(e.Sequence, " ")
		}
		if got != want {
			t.Errorf("newest %v: %s", newest, got)
		}
	}
	k := kept{limit: 100}
	large := &driver.Event{Body: make([]byte, maxKept/2)}
	if err := k.add([]*driver.Event{large, large}); err != nil {
		t.Error(err)
	}
	if err := k.add([]*driver.Event{{Body: make([]byte, 1)}}); err == nil || !strings.Contains(err.Error(), "pass a smaller --limit") {
		t.Errorf("%v", err)
	}
}
