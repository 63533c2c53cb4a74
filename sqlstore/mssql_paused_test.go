package sqlstore

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/sqlservertest"
	"github.com/sluice-go/sluice/internal/proof/suite"
)

// mssqlLocks stands for sys.dm_exec_requests on Babelfish, which does not have that view.
const mssqlLocks = `(
	SELECT w.pid AS session_id, h.pid AS blocking_session_id FROM pg_catalog.pg_locks AS w
	JOIN pg_catalog.pg_locks AS h ON h.transactionid = w.transactionid AND h.granted = 1 WHERE w.granted = 0) AS r`

// seesSessions has a store see which session holds a row, on Babelfish too.
func seesSessions(t *testing.T, s *Store) *Store {
	if !mssqlSeesSessions(t, s) {
		own := *s.sql
		own.Blockers = strings.ReplaceAll(own.Blockers, "sys.dm_exec_requests AS r", mssqlLocks)
		s.sql = &own
	}
	return s
}

// TestSQLServerClaimEndsPaused: a claim, and an operator who sets a checkpoint, end the session of
// an owner that is paused in a step: SQL Server has no time limit for it.
func TestSQLServerClaimEndsPaused(t *testing.T) {
	address := sqlservertest.Database(t)
	s, rival := openMSSQL(t, address, patient), endingSoon(seesSessions(t, openMSSQL(t, address, patient)))
	_, err := s.Claim(t.Context(), leaseOf("0", "a", 1), "1")
	suite.NoError(t, "claim", err)
	holdStep(t, s, leaseOf("0", "a", 1))
	paused, b := time.Now(), leaseOf("0", "b", 2)
	_, err = rival.Claim(t.Context(), b, "1")
	suite.NoError(t, "claim of the rival", err)
	suite.NoError(t, "commit", rival.Commit(t.Context(), driver.Step{Lease: b, From: driver.Unset, To: positionAt(1)}, nil))
	t.Logf("the rival committed %v after the pause", time.Since(paused).Round(10*time.Millisecond))

	_, err = s.Reset(t.Context(), group, "0", "1", driver.Unset, "set")
	suite.NoError(t, "reset", err)
	c := leaseOf("0", "c", 5)
	_, err = s.Claim(t.Context(), c, "1")
	suite.NoError(t, "claim", err)
	holdStep(t, s, c)
	_, err = rival.Reset(t.Context(), group, "0", "1", positionAt(7), "set")
	suite.NoError(t, "reset by the rival", err)
}

// TestSQLServerClaimSparesOthers: a claim does not end the session of another program, nor of an
// owner whose claim is later. It waits for the lock time-out.
func TestSQLServerClaimSparesOthers(t *testing.T) {
	address := sqlservertest.Database(t)
	s := endingSoon(seesSessions(t, openMSSQL(t, address, &ServerConfig{LockTimeout: 6 * time.Second})))
	other := openMSSQL(t, address+"&app+name=other", nil)
	b := leaseOf("0", "b", 2)
	_, err := s.Claim(t.Context(), b, "1")
	suite.NoError(t, "claim", err)
	err = s.Commit(t.Context(), driver.Step{Lease: b, From: driver.Unset, To: positionAt(1)}, func(ctx context.Context, tx *Tx) error {
		for _, lease := range []driver.Lease{leaseOf("0", "a", 1), leaseOf("0", "a", 2)} {
			_, err := s.Claim(ctx, lease, "1")
			if fenced, ok := errors.AsType[*driver.FencedError](err); !ok || fenced.Owner != "b" {
				t.Errorf("claim in epoch %d while a later owner works: %v", lease.Epoch, err)
			}
		}
		return nil
	})
	suite.NoError(t, "commit beside claims that come too late", err)

	release := lockedBy(other, mssqlLock)(t)
	_, err = s.Claim(t.Context(), leaseOf("0", "c", 3), "1")
	mustNotBlame(t, "claim of what another program has locked", err)
	saysAll(t, "claim of what another program has locked", err, "1222", "look for a paused process",
		`(application "other") holds the checkpoint`, "end it by KILL ")
	release()
	_, err = s.Claim(t.Context(), leaseOf("0", "c", 3), "1")
	suite.NoError(t, "claim after that", err)
}
