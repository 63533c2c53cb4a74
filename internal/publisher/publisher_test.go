package publisher

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/driver"
)

func committed(partition string, sequence int64) driver.Observation {
	return driver.Observation{Kind: driver.KindCommitted, Partition: partition, Epoch: 1, To: driver.Position{Sequence: sequence}}
}

// place is where a test publishes. Each publication takes a second.
type place struct {
	err   error
	shown []string
}

func (p *place) publish(_ context.Context, due map[string]Checkpoint) error {
	time.Sleep(time.Second)
	text := ""
	for _, partition := range []string{"0", "1"} {
		if c, ok := due[partition]; ok {
			text += fmt.Sprintf("%s:%d,%v ", partition, c.Position.Sequence, c.Held)
		}
	}
	p.shown = append(p.shown, text)
	if p.err == nil {
		clear(due)
	}
	return p.err
}

// scenario runs a publisher that publishes every five seconds, and compares what it published.
func scenario(t *testing.T, to *place, steps func(p *Publisher), want ...string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := Start(Config{Every: 5 * time.Second, Timeout: 15 * time.Second, Publish: to.publish})
		steps(p)
		if err := p.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if fmt.Sprintf("%q", to.shown) != fmt.Sprintf("%q", want) {
			t.Errorf("published %q, want %q", to.shown, want)
		}
	})
}

// TestLostWhileItFails: a checkpoint of a partition that is lost during an attempt that fails is
// not tried again, because the next owner may be further.
func TestLostWhileItFails(t *testing.T) {
	to := &place{err: errors.New("no answer")}
	scenario(t, to, func(p *Publisher) {
		p.Observe(committed("0", 7))
		p.Observe(committed("1", 7))
		time.Sleep(5*time.Second + 500*time.Millisecond) // in the middle of the attempt
		p.Observe(driver.Observation{Kind: driver.KindLost, Partition: "0", Epoch: 1})
		time.Sleep(time.Second)
		to.err = nil
		time.Sleep(5 * time.Second)
	}, "0:7,true 1:7,true ", "1:7,true ")
}

// TestNewerWhileItIsPublished: a checkpoint that was stored during an attempt is published by the
// next one.
func TestNewerWhileItIsPublished(t *testing.T) {
	to := &place{}
	scenario(t, to, func(p *Publisher) {
		p.Observe(committed("0", 7))
		p.Observe(committed("1", 7))
		time.Sleep(5*time.Second + 500*time.Millisecond)
		p.Observe(committed("0", 8))
		p.Observe(driver.Observation{Kind: driver.KindReleased, Partition: "0", Epoch: 1})
		time.Sleep(6 * time.Second)
	}, "0:7,true 1:7,true ", "0:8,false ")
}

// TestStartIsPublished: a partition without a checkpoint has its start as soon as it is read, which
// is after the start was stored. Where reading begins later is no checkpoint: events may be in
// flight.
func TestStartIsPublished(t *testing.T) {
	to := &place{}
	scenario(t, to, func(p *Publisher) {
		opened := driver.Observation{Kind: driver.KindOpened, Partition: "0", Epoch: 1, To: driver.Position{Sequence: 41}}
		p.Observe(opened) // of a delivery without checkpoints
		p.Observe(driver.Observation{Kind: driver.KindClaimed, Partition: "0", Epoch: 1, To: driver.Unset})
		time.Sleep(6 * time.Second)
		p.Observe(opened)
		time.Sleep(5 * time.Second)
		opened.To.Sequence = 90
		p.Observe(opened)
		time.Sleep(5 * time.Second)
	}, "0:41,true ")
}

// TestDeliveryIsNotDelayed: while a publication hangs, observing takes no time.
func TestDeliveryIsNotDelayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := Start(Config{Every: 5 * time.Second, Timeout: 15 * time.Second, Publish: func(ctx context.Context, _ map[string]Checkpoint) error {
			<-ctx.Done()
			return ctx.Err()
		}})
		p.Observe(committed("0", 7))
		time.Sleep(6 * time.Second)
		began := time.Now()
		for n := range int64(1000) {
			p.Observe(committed("0", 8+n))
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("observing took %v", took)
		}
		_ = p.Close(t.Context())
		if took := time.Since(began); took != finalTimeout {
			t.Errorf("the end took %v", took)
		}
	})
}
