//go:build unix

package pgtest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
)

// NewStandby starts a hot standby of the server, which follows it by streaming replication, for one
// test. It has the server's roles and databases.
func (s *Server) NewStandby(t testing.TB) *Server {
	t.Helper()
	standby, err := s.standby()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := standby.Close(); err != nil {
			t.Error(err)
		}
	})
	return standby
}

func (s *Server) standby() (*Server, error) {
	dir, err := os.MkdirTemp("", "sluice-pg-")
	if err != nil {
		return nil, fmt.Errorf("make the standby's directory: %w", err)
	}
	standby := &Server{bin: s.bin, dir: dir, password: s.password, settings: slices.Clone(s.settings)}
	standby.settings = append(standby.settings, "unix_socket_directories = '"+dir+"'")
	if err := standby.follow(s); err != nil {
		return nil, errors.Join(err, standby.Close())
	}
	return standby, nil
}

// follow copies a running server and starts the copy as its standby.
func (s *Server) follow(primary *Server) error {
	if err := s.fasten(); err != nil {
		return err
	}
	if err := s.own(); err != nil {
		return err
	}
	cmd := s.command("pg_basebackup", "--pgdata", s.data(), "--dbname", primary.URL("postgres"), "--write-recovery-conf", "--checkpoint", "fast", "--no-sync")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("pg_basebackup: %w: %s", err, bytes.TrimSpace(out))
	}
	return s.launch()
}
