package kafka

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/driver"
)

// kafkaGroup is a consumer group of Kafka.
type kafkaGroup struct {
	members []string
	err     error
	commits []map[string]driver.Position
}

func (g *kafkaGroup) ConsumerGroup(context.Context, string) (ConsumerGroup, error) {
	return ConsumerGroup{Members: g.members}, g.err
}

func (g *kafkaGroup) CommitOffsets(_ context.Context, _ string, positions map[string]driver.Position) error {
	if g.err == nil {
		g.commits = append(g.commits, positions)
	}
	return g.err
}

// reports returns what was committed since the last call.
func (g *kafkaGroup) reports() string {
	text := fmt.Sprint(g.commits)
	g.commits = nil
	return text
}

func positionAt(sequence int64) driver.Position { return driver.Position{Sequence: sequence} }

func TestProgressIsPublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &kafkaGroup{}
		var failures []string
		observer := driver.ObserverFunc(func(o driver.Observation) { failures = append(failures, fmt.Sprint(o.Kind, ": ", o.Err)) })
		p, err := newProgress(t.Context(), g, "g", observer)
		if err != nil {
			t.Fatal(err)
		}
		expect := func(step, want string) {
			t.Helper()
			time.Sleep(publishEvery)
			synctest.Wait()
			if got := g.reports(); got != want {
				t.Errorf("%s: committed %s, want %s", step, got, want)
			}
		}
		expect("nothing is held", "[]")
		p.Observe(driver.Observation{Kind: driver.KindClaimed, Partition: "0", To: positionAt(9)})
		p.Observe(driver.Observation{Kind: driver.KindClaimed, Partition: "1", To: driver.Unset})
		expect("a checkpoint was claimed", "[map[0:9]]")
		for n := range int64(1000) {
			p.Observe(driver.Observation{Kind: driver.KindCommitted, Partition: "0", To: positionAt(10 + n)})
		}
		p.Observe(driver.Observation{Kind: driver.KindCommitted, Partition: "1", To: positionAt(3)})
		expect("many commits", "[map[0:1009 1:3]]")
		expect("no commit", "[]")

		g.err = errors.New("no leader")
		p.Observe(driver.Observation{Kind: driver.KindCommitted, Partition: "0", To: positionAt(1010)})
		p.Observe(driver.Observation{Kind: driver.KindCommitted, Partition: "1", To: positionAt(4)})
		time.Sleep(3 * publishEvery)
		synctest.Wait()
		if len(failures) != 1 || !strings.Contains(failures[0], "hook failed: publish progress to Kafka, tried again every 5s: no leader") {
			t.Errorf("reported %q", failures)
		}
		g.err = nil
		p.Observe(driver.Observation{Kind: driver.KindCommitted, Partition: "0", To: positionAt(1011)})
		p.Observe(driver.Observation{Kind: driver.KindLost, Partition: "1"})
		expect("the newest after a failure, and nothing of a lost partition", "[map[0:1011]]")

		time.Sleep(publishAll)
		expect("once an hour", "[map[0:1011]]")
		p.Observe(driver.Observation{Kind: driver.KindCommitted, Partition: "0", To: positionAt(1012)})
		p.Observe(driver.Observation{Kind: driver.KindReleased, Partition: "0"})
		if err := p.Close(t.Context()); err != nil || g.reports() != "[map[0:1012]]" {
			t.Errorf("the last position is not published: %v", err)
		}
	})
}

func TestProgressIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, err := newProgress(t.Context(), &kafkaGroup{members: []string{"a at /10.0.0.1", "b", "c", "d"}}, "g", nil)
		if !errors.Is(err, ErrGroupActive) || err.Error() != "group g: the consumer group has active members: a at /10.0.0.1, b, c: stop them, or name a group that no program reads in" {
			t.Errorf("got %v", err)
		}
		if _, err = newProgress(t.Context(), &kafkaGroup{err: driver.ErrRefused}, "g", nil); err == nil {
			t.Error("a refused request is ignored")
		}
		p, err := newProgress(t.Context(), &kafkaGroup{err: errors.New("no route")}, "g", nil)
		if err != nil {
			t.Fatalf("brokers that do not answer end the start: %v", err)
		}
		p.Observe(driver.Observation{Kind: driver.KindClaimed, Partition: "0", To: positionAt(9)})
		time.Sleep(publishEvery)
		_ = p.Close(t.Context())
	})
}
