//go:build linux

package attack

import (
	"context"
	"math/rand/v2"

	"github.com/sluice-go/sluice/cmd/sluice/internal/history"
	"github.com/sluice-go/sluice/internal/proof/tcplink"
)

// Source is a kind of log that consumers read under attack: [EventHubs] or [Kafka].
type Source struct {
	Name   string
	faults []Fault // of its servers
	make   func(w *world) source
}

// source is the log under attack, and those who write to it.
type source interface {
	// start starts the servers.
	start(ctx context.Context) error
	// route makes the connections of one process to it: links to all its servers. env are their
	// environment variables.
	route() ([]*tcplink.Link, error)
	env(links []*tcplink.Link) []string
	// reset resets the connections of those who write. strike carries out one of the source's
	// faults.
	reset()
	strike(ctx context.Context, f Fault, random *rand.Rand) error
	// send sends events until the plan's are sent and enough is closed. acknowledged is how many
	// events certainly are in the log.
	send(ctx context.Context, enough <-chan struct{}) error
	acknowledged() int64
	// misconfigured runs commands that must fail, whose output must not show secrets. A setting
	// that is wrong is the source's, database is right.
	misconfigured(ctx context.Context, database string)
	// settle prepares the log for the comparison with the database: all servers run, and nothing is
	// under way any more.
	settle(ctx context.Context) error
	// compare adds the log's events to a checker, and reports differences between them, what was
	// sent and the effects.
	compare(ctx context.Context, done *effects, check *history.Checker, r *Report) error
	// stop stops the servers, and reports what went wrong with them.
	stop(ctx context.Context, r *Report)
	// close stops what still runs.
	close() error
}
