package sqlstore

import (
	"testing"
	"time"

	"github.com/sluice-go/sluice/internal/proof/sqlservertest"
	"github.com/sluice-go/sluice/internal/proof/suite"
)

// TestSQLServerSilentEnd: a server that falls silent before COMMIT makes the outcome unknown, and
// one that does so before ROLLBACK holds nothing up, within a third of the lease each, and what a
// cancel takes.
func TestSQLServerSilentEnd(t *testing.T) {
	link, through := linkTo(t, sqlservertest.Database(t))
	s := openMSSQL(t, through, &ServerConfig{LeaseFor: 20 * time.Second, LockTimeout: time.Second})
	silentEnds(t, link, s, 30*time.Second)
}

// TestSQLServerSilence: a server that is silent from some moment of a step on does not hold up the
// step, whether the step's context ends or not.
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
