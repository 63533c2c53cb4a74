//go:build unix

package pgtest

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// ErrNoPgBouncer says that PgBouncer is not installed.
var ErrNoPgBouncer = errors.New("PgBouncer is not installed: run scripts/install-postgres, or leave these tests out by leaving out -tags postgres")

// PgBouncer starts a PgBouncer, with its defaults, before the server of [Run], and
// returns a function that makes a database's URL lead through it. mode is session or
// transaction. Like that of Azure, it refuses every startup parameter that it does not
// know.
func PgBouncer(t testing.TB, mode string) (through func(url string) string) {
	t.Helper()
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		if program, err = exec.LookPath("/usr/sbin/pgbouncer"); err != nil {
			t.Fatal(ErrNoPgBouncer)
		}
	}
	server := shared.Of(t)
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "sluice-pgbouncer-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	config := filepath.Join(dir, "pgbouncer.ini")
	text := fmt.Sprintf(`[databases]
* = host=127.0.0.1 port=%d user=%s password=%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = %s
`, server.port, user, server.password, port, mode)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	who, err := unprivileged()
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	cmd := exec.Command(program, config)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &log, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: who, Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if t.Failed() {
			t.Logf("PgBouncer's log: %s", log.Bytes())
		}
	})
	address := fmt.Sprintf("127.0.0.1:%d", port)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(startWithin); ; <-tick.C {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			conn.Close()
			break
		}
		if time.Now().After(end) {
			t.Fatalf("PgBouncer did not start within %v: %v", startWithin, err)
		}
	}
	return func(direct string) string {
		u, err := url.Parse(direct)
		if err != nil {
			t.Fatal(err)
		}
		u.Host = address
		return u.String()
	}
}
