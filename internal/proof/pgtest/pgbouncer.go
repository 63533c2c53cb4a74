//go:build unix

package pgtest

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"syscall"
	"testing"

	"github.com/sluice-go/sluice/internal/proof/testserver"
)

// ErrNoPgBouncer says that PgBouncer is not installed.
var ErrNoPgBouncer = errors.New("PgBouncer is not installed: run scripts/install-postgres")

// PgBouncer starts a PgBouncer, with its defaults, before the shared server, and
// returns a function that makes a database's URL lead through it. mode is session or
// transaction. Like that of Azure, it refuses every startup parameter that it does not
// know.
func PgBouncer(t testing.TB, mode string) (through func(url string) string) {
	t.Helper()
	bouncer := testserver.New(t, func() (*testserver.Process, error) { return startPgBouncer(shared.Get(t), mode) })
	return func(direct string) string {
		u, err := url.Parse(direct)
		if err != nil {
			t.Fatal(err)
		}
		u.Host = bouncer.Addr()
		return u.String()
	}
}

func startPgBouncer(server *Server, mode string) (*testserver.Process, error) {
	path, err := testserver.Find("pgbouncer")
	if err != nil {
		return nil, ErrNoPgBouncer
	}
	p, err := testserver.NewProcess(testserver.Program{Name: "PgBouncer", Ready: "process up", End: syscall.SIGKILL, Users: program.Users})
	if err != nil {
		return nil, err
	}
	err = p.Launch(func() error {
		text := fmt.Sprintf(`[databases]
* = host=127.0.0.1 port=%d user=%s password=%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = %s
`, server.Port(), user, server.password, p.Port(), mode)
		if err := os.WriteFile(p.File("pgbouncer.ini"), []byte(text), 0o644); err != nil {
			return err
		}
		return p.Start(path, p.File("pgbouncer.ini"))
	})
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}
