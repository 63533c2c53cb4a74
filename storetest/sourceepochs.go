package storetest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/suite"
)

var epochChecks = []suite.Check[SourceHarness]{
	{Name: "LowerEpoch", Run: func(t testing.TB, h SourceHarness) {
		s, p, _ := h.filled(t)
		other := h.Connect(t)
		from := start(t, s, p, sluice.Earliest())
		r := open(t, s, p, from, 5)
		if h.Features.NoEpochs {
			beside, err := other.Open(suite.Context(t), p, from, 4)
			suite.NoError(t, "open beside a reader, epochs do not count", err)
			if got := bodies(t, beside, 5); got != "abcde" {
				t.Errorf("read %q beside another reader", got)
			}
			suite.NoError(t, "close", beside.Close(suite.Context(t)))
		} else {
			wantStolenError(t, "open in epoch 4 against a reader of 5", openAndRead(t, other, p, from, 4), p, 5)
			if _, err := other.Seek(suite.Context(t), p, sluice.At(time.Now().Add(-time.Hour)), 4); err != nil {
				wantStolenError(t, "seek in epoch 4 against a reader of 5", err, p, 5)
			}
		}
		if got := bodies(t, r, 5); got != "abcde" {
			t.Errorf("the reader of epoch 5 read %q", got)
		}
		suite.NoError(t, "close", r.Close(suite.Context(t)))
		// Only live links are compared.
		suite.Eventually(t, "a reader of epoch 4 opens after that of 5 has closed", func() bool {
			r, err := other.Open(suite.Context(t), p, from, 4)
			if err != nil {
				suite.ErrorIs(t, "open", err, driver.ErrStolen)
				return false
			}
			return r.Close(suite.Context(t)) == nil
		})
		// Each replica of a cache is such a reader: none disconnects another.
		first, second := open(t, s, p, from, driver.NoEpoch), open(t, other, p, from, driver.NoEpoch)
		h.send(t, p, "f")
		for _, r := range []driver.Reader{second, first} {
			if got := bodies(t, r, 6); got != "abcdef" {
				t.Errorf("a reader without an epoch beside another read %q", got)
			}
		}
	}},
	{Name: "NoEpoch", Run: func(t testing.TB, h SourceHarness) {
		s, p, _ := h.filled(t)
		other := h.Connect(t)
		from := start(t, s, p, sluice.Earliest())
		r := open(t, s, p, from, 0)
		if !h.Features.NoEpochs {
			if err := openAndRead(t, other, p, from, driver.NoEpoch); !errors.Is(err, driver.ErrStolen) {
				t.Errorf("open without an epoch against a reader of 0: %v, want a StolenError", err)
			}
		}
		if _, err := other.Seek(suite.Context(t), p, sluice.At(time.Now().Add(-time.Hour)), driver.NoEpoch); err != nil {
			suite.ErrorIs(t, "seek without an epoch against a reader of 0", err, driver.ErrStolen)
		}
		if got := bodies(t, r, 5); got != "abcde" {
			t.Errorf("the reader of epoch 0 read %q", got)
		}
		suite.NoError(t, "close", r.Close(suite.Context(t)))
		suite.Eventually(t, "a reader without an epoch opens after that of 0 has closed", func() bool {
			r, err := other.Open(suite.Context(t), p, from, driver.NoEpoch)
			if err != nil {
				suite.ErrorIs(t, "open", err, driver.ErrStolen)
				return false
			}
			return r.Close(suite.Context(t)) == nil
		})
	}},
	{Name: "Evict", Run: func(t testing.TB, h SourceHarness) {
		s := h.Connect(t)
		p, q := h.partitions(t, s)
		from := start(t, s, p, sluice.Latest())
		aside := open(t, s, q, start(t, s, q, sluice.Latest()), 1)
		// Readers come in the epoch of the one before, which the log may not have dropped yet. An
		// equal epoch evicts too.
		mine := int64(3)
		for _, epoch := range []int64{3, 3, 4, 1 << 20} {
			r := open(t, s, p, from, mine)
			got := suite.Spawn(t, func() error {
				_, err := r.Read(suite.Context(t), 10)
				return err
			})
			if err, came := suite.Settled(got); came {
				t.Fatalf("read on an empty partition: %v", err)
			}
			thief := open(t, h.Connect(t), p, from, epoch)
			if h.Features.NoEpochs {
				if err, came := suite.Settled(got); came {
					t.Fatalf("a reader came beside, epochs do not count: got %v", err)
				}
				suite.NoError(t, "close", r.Close(suite.Context(t)))
			} else {
				wantStolenError(t, fmt.Sprintf("waiting read in epoch %d when one of %d comes", mine, epoch), <-got, p, epoch)
				_, err := r.Read(suite.Context(t), 10)
				suite.ErrorIs(t, "another read of it", err, driver.ErrStolen)
				suite.NoError(t, "close", r.Close(suite.Context(t)))
			}
			h.send(t, p, "x")
			from = read(t, thief, 1)[0].Position()
			suite.NoError(t, "close", thief.Close(suite.Context(t)))
			mine = epoch
		}
		h.send(t, q, "y")
		if got := bodies(t, aside, 1); got != "y" {
			t.Errorf("the reader of the other partition read %q", got)
		}
	}},
	{Name: "EvictIdle", Run: func(t testing.TB, h SourceHarness) {
		// The reader is not reading when it is evicted.
		s, p, _ := h.filled(t)
		from := start(t, s, p, sluice.Earliest())
		r := open(t, s, p, from, 3)
		read(t, r, 1)
		thief := open(t, h.Connect(t), p, from, 4)
		if h.Features.NoEpochs {
			if got := bodies(t, r, 4); got != "bcde" {
				t.Errorf("a reader came beside, epochs do not count: read %q", got)
			}
		} else {
			wantStolenError(t, "reads on after a reader of epoch 4 came", fails(t, r), p, 4)
		}
		if got := bodies(t, thief, 5); got != "abcde" {
			t.Errorf("the reader of epoch 4 read %q", got)
		}
	}},
}
