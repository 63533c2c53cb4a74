//go:build sqlserver

package sqlstore

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/sqlservertest"
	"github.com/sluice-go/sluice/internal/proof/suite"
)

// TestSQLServerSilentEnd: a server that falls silent before COMMIT makes the outcome unknown, and one that
// does so before ROLLBACK holds nothing up, within a third of the lease each, and what a cancel takes.
func TestSQLServerSilentEnd(t *testing.T) {
	link, through := linkTo(t, sqlservertest.Database(t))
	s := openMSSQL(t, through, &ServerConfig{LeaseFor: 20 * time.Second, LockTimeout: time.Second})
	lease := driver.Lease{Group: group, Partition: "0", Owner: "a", Epoch: 1}
	claim := func(ctx context.Context) error { _, err := s.Claim(ctx, lease, "1"); return err }
	suite.NoError(t, "claim", claim(t.Context()))
	refused := errors.New("the handler's own error")
	for _, returned := range []error{nil, refused} {
		began := time.Now()
		err := s.Commit(t.Context(), driver.Step{Lease: lease, From: driver.Unset, To: at(9)}, func(context.Context, *Tx) error {
			link.Swallow()
			return returned
		})
		if took := time.Since(began); took > 30*time.Second {
			t.Errorf("the handler returned %v: given up after %v", returned, took)
		}
		mustNotBlame(t, "silent end", err)
		link.Recover()
		suite.Eventually(t, "the connections are new", func() bool { return claim(t.Context()) == nil })
	}
}

// TestSQLServerSilence: a server that is silent from some moment of a step on does not hold up the step,
// whether the step's context ends or not.
func TestSQLServerSilence(t *testing.T) {
	link, through := linkTo(t, sqlservertest.Database(t))
	s := openMSSQL(t, through, &ServerConfig{LeaseFor: 20 * time.Second, LockTimeout: time.Second})
	silentSteps(t, link, s, 45*time.Second, func(when string, ran bool, err error) {
		if ran == (when == "while it connects") {
			t.Errorf("silence %s: the handler ran: %t; %v", when, ran, err)
		}
		if when == "before the step" {
			// The reset of the session is not answered, and another connection takes its place.
			suite.NoError(t, when, err)
			return
		}
		mustNotBlame(t, when, err)
	})
}
