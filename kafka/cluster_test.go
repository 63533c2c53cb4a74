package kafka

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/kafkatest"
	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/internal/proof/suite"
)

func TestThreeBrokers(t *testing.T) {
	need.Kafka(t)
	t.Parallel()
	three := kafkatest.New(t, &kafkatest.Config{Brokers: 3})
	t.Run("conformance", func(t *testing.T) {
		conformance(t, func(t testing.TB) *cluster { return newCluster(t, three.Brokers(), three.Topic(t, 2)) })
	})
	t.Run("truncation", func(t *testing.T) { testTruncation(t, three) })
	t.Run("truncation back", func(t *testing.T) { testTruncationBack(t, three) })
}

func TestOtherLeaders(t *testing.T) {
	need.Kafka(t)
	t.Parallel()
	three := kafkatest.New(t, &kafkatest.Config{Brokers: 3})
	t.Run("leader moves", func(t *testing.T) { testLeaderMoves(t, three) })
	t.Run("deliveries", func(t *testing.T) { testDeliveries(t, three) })
}

// lossy returns a topic of one partition on two of three brokers, which loses records when a
// replica that lacks them is elected.
func lossy(t *testing.T, three *kafkatest.Cluster, name string, configs ...string) *cluster {
	t.Helper()
	suite.NoError(t, "create", three.CreateTopicOn(suite.Context(t), name, 1, 2, append(configs, "min.insync.replicas=1")...))
	return newCluster(t, three.Brokers(), name)
}

// wantTruncated opens a reader at a position and wants to learn what was lost.
func wantTruncated(t *testing.T, s *Source, at driver.Position, end int64) {
	t.Helper()
	r, err := s.Open(suite.Context(t), "0", at, 1)
	if err == nil {
		_, err = r.Read(suite.Context(t), 1)
	}
	got, found := errors.AsType[*driver.TruncatedError](err)
	if want := (driver.TruncatedError{Partition: "0", Position: at, End: end}); !found || *got != want {
		t.Errorf("opened at %v (%s): got %v, want %v", at, at.Offset, err, &want)
	}
}

// An unclean election takes events away that were read. Open names exactly those, whatever the log
// holds in their place; a reader that is open ends with an error; and a position before the loss is
// as good as ever.
func testTruncation(t *testing.T, three *kafkatest.Cluster) {
	c := lossy(t, three, "lossy")
	s := c.source(t, nil)
	c.send(t, numbered("kept", 10)...)
	r := openAt(t, s, driver.Origin)
	_, kept := readTo(t, r, 9)
	var lost driver.Position
	suite.NoError(t, "lose the end", three.LoseEnd(t.Context(), c.topic, 0, func() error {
		c.send(t, numbered("lost", 7)...)
		_, lost = readTo(t, r, 16)
		return nil
	}))
	if kept.Offset == "" || !strings.HasSuffix(kept.Offset, " from 0") {
		t.Errorf("the history of event 9 is %q", kept.Offset)
	}
	_, err := r.Read(suite.Context(t), 1)
	if err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a reader that had read what is lost: %v", err)
	}
	t.Log(err)
	wantTruncated(t, s, lost, 10)
	wantTruncated(t, c.source(t, nil), lost, 10)

	// The log grows past the position.
	c.send(t, numbered("new", 10)...)
	wantTruncated(t, s, lost, 10)
	for _, from := range []driver.Position{kept, {Sequence: 9}} {
		got, at := readTo(t, openAt(t, s, from), 19)
		if want := strings.Join(numbered("new", 10), ""); got != want || at.Sequence != 19 || !strings.HasSuffix(at.Offset, " from 10") {
			t.Errorf("after %v read %q up to %v (%s), want %q up to 19, of an epoch that began at 10", from, got, at, at.Offset, want)
		}
	}
	// Without a history there is nothing to compare with.
	if got, _ := readTo(t, openAt(t, s, driver.Position{Sequence: 16}), 19); got != "new7 new8 new9 " {
		t.Errorf("without a history, read %q", got)
	}
}

// The leader of before comes back with what it had written, and takes away what the leader between
// wrote.
func testTruncationBack(t *testing.T, three *kafkatest.Cluster) {
	c := lossy(t, three, "back", "unclean.leader.election.enable=true")
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	s := c.source(t, nil)
	c.send(t, numbered("kept", 10)...)
	suite.NoError(t, "sync", three.AwaitSynced(ctx, c.topic, 0))
	p, err := three.Partition(ctx, c.topic, 0)
	suite.NoError(t, "partition", err)
	first, second := int(p.Leader), int(p.Replicas[0]+p.Replicas[1])-int(p.Leader)
	led := func(by, isr int) func() bool {
		return func() bool {
			p, err := three.Partition(ctx, c.topic, 0)
			return err == nil && int(p.Leader) == by && len(p.ISR) == isr
		}
	}
	suite.NoError(t, "pause", three.Pause(second))
	eventually(t, "the second replica is out of sync", led(first, 1))
	c.send(t, numbered("back", 7)...)
	suite.NoError(t, "kill", three.Kill(first))
	suite.NoError(t, "continue", three.Continue(second))
	eventually(t, "the second replica leads", led(second, 1))
	c.send(t, numbered("between", 5)...)
	got, at := readTo(t, openAt(t, s, driver.Position{Sequence: 9}), 14)
	if got != strings.Join(numbered("between", 5), "") {
		t.Fatalf("read %q from the second leader", got)
	}
	suite.NoError(t, "kill", three.Kill(second))
	suite.NoError(t, "restart", three.Restart(first))
	eventually(t, "the first replica leads", led(first, 1))
	wantTruncated(t, s, at, 10)
	if got, _ := readTo(t, openAt(t, s, driver.Position{Sequence: 9}), 16); got != strings.Join(numbered("back", 7), "") {
		t.Errorf("read %q from the first leader", got)
	}
}

// A reader follows the leader: where it moves, where its broker is killed, and where it comes back.
func testLeaderMoves(t *testing.T, three *kafkatest.Cluster) {
	c := newCluster(t, three.Brokers(), three.Topic(t, 2))
	s := c.source(t, nil)
	r := openAt(t, s, driver.Origin)
	end := int64(-1)
	sendAndRead := func(what string) {
		t.Helper()
		c.send(t, numbered(what, 5)...)
		end += 5
		began := time.Now()
		if got, at := readTo(t, r, end); got != strings.Join(numbered(what, 5), "") {
			t.Fatalf("%s: read %q up to %v (%s)", what, got, at, at.Offset)
		}
		t.Logf("%s: read on after %v", what, time.Since(began))
	}
	sendAndRead("begin")
	for broker := 1; broker <= 3; broker++ {
		suite.NoError(t, "move", three.Move(t.Context(), c.topic, 0, broker))
		sendAndRead(fmt.Sprintf("moved to %d", broker))
	}
	p, err := three.Partition(t.Context(), c.topic, 0)
	suite.NoError(t, "partition", err)
	suite.NoError(t, "kill", three.Kill(int(p.Leader)))
	sendAndRead("leader killed")
	suite.NoError(t, "restart", three.Restart(int(p.Leader)))
	suite.NoError(t, "sync", three.AwaitSynced(t.Context(), c.topic, 0))
	suite.NoError(t, "move", three.Move(t.Context(), c.topic, 0, int(p.Leader)))
	sendAndRead("leader back")
	suite.NoError(t, "pause", three.Pause(int(p.Leader)))
	sendAndRead("leader paused")
	suite.NoError(t, "continue", three.Continue(int(p.Leader)))
	sendAndRead("leader continued")
	latest, err := s.Seek(suite.Context(t), "0", sluice.Latest(), 1)
	if err != nil || latest.Sequence != end {
		t.Errorf("latest is %v, %v; want %d", latest, err, end)
	}
}
