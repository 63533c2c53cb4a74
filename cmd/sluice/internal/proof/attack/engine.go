//go:build linux

package attack

import (
	"context"
	"database/sql"
	"fmt"
	neturl "net/url"
	"slices"
	"strings"
	"time"

	"github.com/sluice-go/sluice/internal/proof/commitproxy"
)

const (
	role     = "attacked"
	database = "flights"
)

// Engine is a kind of database server under attack: [PostgreSQL], [MariaDB] or [SQLServer].
type Engine struct {
	Name     string
	LeaseFor time.Duration // of the consumers; the pipeline must set it
	start    func() (server, error)
	// prepare makes the database and the role, which may do everything in it. It returns
	// connections to the database, which no fault strikes.
	prepare func(ctx context.Context, s server, password string) (*sql.DB, error)
	proxy   func(target string) (*commitproxy.Proxy, error)
	// form is the format of a URL of the database, of user information and address. Further
	// parameters can follow it.
	form  string
	wrong string // a parameter that has no such value
	// moments makes a function for each connection, which finds the moments of steps.
	moments func() func(statements []string) moment
	// refused reports whether an answer to statements shows that the fence has refused a step.
	refused   func(statements, tags []string) bool
	partition string // the column
	expire    string // has the leases of an owner expire, whose name is like the argument
	owned     string // the number of checkpoints of such an owner
}

// server is a database server that runs as a process of ours.
type server interface {
	Addr() string
	Dir() string
	Log() string
	// Stop ends the server as a crash does.
	Stop() error
	// Restart starts it after that, at the same address.
	Restart() error
	Close() error
}

// started returns a server, and nil without one.
func started[S server](s S, err error) (server, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}

// url is the URL of the database at an address.
func (e *Engine) url(user *neturl.Userinfo, addr string) string {
	return fmt.Sprintf(e.form, user, addr)
}

// misconfigured are URLs that contain a password and are wrong in another part.
func (e *Engine) misconfigured(password, addr string) map[string]string {
	good := e.url(neturl.UserPassword(role, password), addr)
	return map[string]string{
		"bad-port":   e.url(neturl.UserPassword(role, password), "127.0.0.1:port"),
		"unescaped":  fmt.Sprintf(e.form, role+":"+password, addr),
		"bad-scheme": "un" + good,
		"bad-option": good + e.wrong + password,
		"wrong-role": e.url(neturl.User("nobody"), addr) + "&password=" + password,
	}
}

// execute runs statements one after the other.
func execute(ctx context.Context, db *sql.DB, statements ...string) error {
	for _, s := range statements {
		if _, err := db.ExecContext(ctx, s); err != nil {
			return fmt.Errorf("make the database: %w", err)
		}
	}
	return nil
}

// moment is a moment in a step: which of its statements is on its way to the database.
type moment int

const (
	never   moment = iota
	begins         // the first statement that reads or writes the checkpoint, which the fence is a part of
	writes         // the batch's rows
	commits        // the COMMIT
)

// sqlstoreMoments finds the moments by sqlstore's statements, of which lock is the first. If those
// change, the attack fails: see [world.recognizes].
func sqlstoreMoments(lock func(statement string) bool, write ...string) func() func(statements []string) moment {
	return func() func([]string) moment {
		moved := false // by the statement before
		return func(statements []string) moment {
			s := statements[0]
			was := moved
			moved = strings.Contains(s, "UPDATE sluice_checkpoints") && strings.Contains(s, "claims = 1,")
			switch {
			case lock(s):
				return begins
			case slices.ContainsFunc(write, func(prefix string) bool { return strings.HasPrefix(s, prefix) }):
				return writes
			case was && s == "COMMIT":
				return commits
			}
			return never
		}
	}
}
