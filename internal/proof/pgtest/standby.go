//go:build unix

package pgtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/sluice-go/sluice/internal/proof/testserver"
)

// NewStandby starts a hot standby of the server, which follows it by streaming replication, for one
// test. It has the server's roles and databases.
func (s *Server) NewStandby(t testing.TB) *Server {
	t.Helper()
	return testserver.New(t, s.standby)
}

func (s *Server) standby() (*Server, error) {
	process, err := testserver.NewProcess(program)
	if err != nil {
		return nil, err
	}
	standby := &Server{Process: process, bin: s.bin, password: s.password, settings: slices.Clone(s.settings)}
	standby.settings = append(standby.settings, "unix_socket_directories = '"+standby.Dir()+"'")
	if err := standby.follow(s); err != nil {
		return nil, errors.Join(err, standby.Close())
	}
	return standby, nil
}

// follow copies a running server and starts the copy as its standby.
func (s *Server) follow(primary *Server) error {
	cmd := s.Command(s.program("pg_basebackup"), "--pgdata", s.File("data"), "--dbname", primary.URL("postgres"), "--write-recovery-conf", "--checkpoint", "fast", "--no-sync")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("pg_basebackup: %w: %s", err, bytes.TrimSpace(out))
	}
	return s.Launch(s.Restart)
}

// Detach ends a standby's replication: what the primary commits from now on, it never has.
func (s *Server) Detach(ctx context.Context) error {
	return errors.Join(s.admin(ctx, "ALTER SYSTEM SET primary_conninfo = ''"), s.admin(ctx, "SELECT pg_reload_conf()"))
}

// Promote makes a standby a primary, as a failover does, and returns once it takes writes.
func (s *Server) Promote() error {
	if out, err := s.Command(s.program("pg_ctl"), "promote", "--wait", "--pgdata", s.File("data")).CombinedOutput(); err != nil {
		return fmt.Errorf("pg_ctl promote: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}
