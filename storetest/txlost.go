package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/suite"
)

// Loss is how a network loses a commit. The store's connection ends in each case.
type Loss int

// The losses.
const (
	NeverArrives Loss = iota // the database does not get the commit
	AnswerLost               // the database carries the commit out
	ArrivesLate              // the database gets the commit later: when deliver is called, if the transaction is still open then
)

func (l Loss) String() string {
	return [...]string{"commit that never arrives", "commit whose answer is lost", "commit that is late"}[l]
}

// Lose has the network lose the next commit of the store. underway, if not nil, is called while the
// commit is on its way. deliver returns when the database has answered a commit that was late.
type Lose func(how Loss, underway func()) (deliver func())

// lostChecks are about commits that a network loses: what Claim returns afterwards is the last
// word.
func lostChecks[Tx any]() []suite.Check[TxHarness[Tx]] {
	var checks []suite.Check[TxHarness[Tx]]
	check := func(name string, run func(t testing.TB, h TxHarness[Tx])) {
		checks = append(checks, suite.Check[TxHarness[Tx]]{Name: name, Run: func(t testing.TB, h TxHarness[Tx]) {
			if h.Lose != nil {
				run(t, h)
			}
		}})
	}
	check("LostCommit", func(t testing.TB, h TxHarness[Tx]) {
		a := h.begin(t)
		h.lose(t, NeverArrives, a, 9, nil)
		if p := h.claimLost(t, a); p.Position != positionAt(9) {
			t.Errorf("claimed %+v after a %v, want position %+v", p, NeverArrives, positionAt(9))
		}
		h.wantEffects(t)
		h.commit(t, driver.Step{Lease: a, From: positionAt(9), To: positionAt(10)}, h.put("10"))
		h.wantEffects(t, "10")
	})
	check("LostAnswer", func(t testing.TB, h TxHarness[Tx]) {
		a := h.begin(t)
		ctx, cancel := context.WithCancel(suite.Context(t))
		defer cancel()
		for n, underway := range []func(){nil, cancel} { // the end of ctx makes no difference
			from, to := positionAt(int64(9+n)), positionAt(int64(10+n))
			h.loseWithin(ctx, t, AnswerLost, a, from.Sequence, underway)
			if p := h.claimLost(t, a); p.Position != to {
				t.Errorf("claimed %+v after a %v, want position %+v", p, AnswerLost, to)
			}
			wantFenced(t, "the step again", h.Store.Commit(suite.Context(t), driver.Step{Lease: a, From: from, To: to}, h.put("again")))
		}
		h.wantEffects(t, "10", "11")
	})
	check("LateCommitBeforeClaim", func(t testing.TB, h TxHarness[Tx]) {
		a := h.begin(t)
		h.lose(t, ArrivesLate, a, 9, nil)()
		if p := h.claimLost(t, a); p.Position != positionAt(10) {
			t.Errorf("claimed %+v after a %v has arrived, want position %+v", p, ArrivesLate, positionAt(10))
		}
		h.wantEffects(t, "10")
	})
	check("LateCommitAfterClaim", func(t testing.TB, h TxHarness[Tx]) {
		a, b := h.begin(t), leaseOf("0", "b", 2)
		deliver := h.lose(t, ArrivesLate, a, 9, nil)
		before, claimed := h.claimOpen(t, b)
		deliver()
		after := h.claimLost(t, b)
		if claimed && after.Position != before.Position {
			t.Errorf("claimed %+v before a %v arrives, and %+v after it", before, ArrivesLate, after)
		}
		var outcome error
		if after.Position == positionAt(9) {
			outcome = driver.ErrUnknown
		}
		h.wantOutcome(t, outcome, after)
		wantFenced(t, "commit of the old owner", h.Store.Commit(suite.Context(t), driver.Step{Lease: a, From: after.Position, To: positionAt(11)}, h.put("11")))
	})
	check("LostCommits", func(t testing.TB, h TxHarness[Tx]) {
		const events = 8
		a := h.begin(t)
		var want []string
		position := int64(9)
		for n := 0; position < 9+events && n < 5*events; n++ {
			how := Loss(n % 4)
			if how > ArrivesLate { // no loss
				h.commit(t, driver.Step{Lease: a, From: positionAt(position), To: positionAt(position + 1)}, h.put(fmt.Sprint(position+1)))
				position++
				continue
			}
			deliver := h.lose(t, how, a, position, nil)
			if n%8 < 4 {
				h.claimOpen(t, a)
			}
			deliver()
			position = h.claimLost(t, a).Position.Sequence
		}
		for n := range events {
			want = append(want, fmt.Sprint(10+n))
		}
		h.wantEffects(t, want...)
		h.wantPosition(t, "0", positionAt(9+events))
	})
	return checks
}

// lose commits the next step after a sequence number, which the network loses. Its effect is the
// number that it moves to.
func (h *TxHarness[Tx]) lose(t testing.TB, how Loss, lease driver.Lease, from int64, underway func()) (deliver func()) {
	t.Helper()
	return h.loseWithin(suite.Context(t), t, how, lease, from, underway)
}

func (h *TxHarness[Tx]) loseWithin(ctx context.Context, t testing.TB, how Loss, lease driver.Lease, from int64, underway func()) (deliver func()) {
	t.Helper()
	deliver = h.Lose(how, underway)
	err := h.Store.Commit(ctx, driver.Step{Lease: lease, From: positionAt(from), To: positionAt(from + 1)}, h.put(fmt.Sprint(from+1)))
	if !errors.Is(err, driver.ErrUnknown) || errors.Is(err, driver.ErrFenced) || isHandlerError(err) {
		t.Errorf("%v: got %T %v, want ErrUnknown", how, err, err)
	}
	if err != nil && strings.Contains(err.Error(), "\n") {
		t.Errorf("%v: the error %q has more than one line", how, err)
	}
	return deliver
}

// claimLost claims until it succeeds: the database may still have to end the connection that was
// lost.
func (h *TxHarness[Tx]) claimLost(t testing.TB, lease driver.Lease) (p driver.Checkpoint) {
	t.Helper()
	again(t, "claim after a commit that was lost", func(ctx context.Context) (err error) {
		p, err = h.peer().Claim(ctx, lease, "incarnation 1")
		return err
	})
	return p
}

// claimOpen claims a partition whose last transaction may still be open, and reports whether it
// could.
func (h *TxHarness[Tx]) claimOpen(t testing.TB, lease driver.Lease) (p driver.Checkpoint, claimed bool) {
	t.Helper()
	ctx := suite.Context(t)
	if h.Features.WaitsForOpen {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, 4*suite.Moment)
		defer cancel()
	}
	p, err := h.peer().Claim(ctx, lease, "incarnation 1")
	if err != nil && (!h.Features.WaitsForOpen || errors.Is(err, driver.ErrFenced)) {
		t.Errorf("claim after a commit that was lost: %v", err)
	}
	return p, err == nil
}
