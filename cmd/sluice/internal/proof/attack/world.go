//go:build linux

package attack

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net"
	neturl "net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/sluice-go/sluice/cmd/sluice/internal/proof/netns"
	"github.com/sluice-go/sluice/internal/proof/tcplink"
)

const (
	hubName    = "flights"
	keyName    = "attack"
	partitions = 6
	consumers  = 3
)

// Config configures an attack.
type Config struct {
	Source   *Source           // the log. Default: EventHubs
	Engine   *Engine           // the database
	Binary   string            // the program
	Unfenced bool              // it has no fence, so that no transaction is refused
	Posts    bool              // the pipeline posts to TARGET_URL, where the attack's own receiver writes the rows
	Forgets  bool              // that receiver forgets some of the events
	Pipeline string            // text of its pipeline file
	Records  []json.RawMessage // sent in turn, repeatedly
	Dir      string            // for all outputs; it must be empty
	Plan     Plan
	// CatchUp is how long the consumers may take for the remaining events after
	// the last fault. Default: 3 minutes.
	CatchUp time.Duration
	// Limit is how long the attack goes on at most until every fault has struck as often as
	// planned. Default: 10 minutes.
	Limit time.Duration
	// Log takes lines of progress. Default: none.
	Log func(format string, args ...any)
}

// world holds everything that runs in an attack.
type world struct {
	Config
	tally   *tally
	end     time.Time // the end of Limit
	secrets *canaries

	server      server
	db          *sql.DB        // our own connection, not through a proxy
	hostNetwork *netns.Network // nil without network namespaces
	host        string         // address of the links for the processes
	source      source
	receiver    *receiver // nil unless the pipeline posts
	consumers   []*consumer
	clean       *route // for commands; no fault strikes it

	deliveries sync.WaitGroup
	mu         sync.Mutex // guards the fields below, and the random numbers of commit faults
	failing    int
}

// build starts everything, the consumers last.
func (w *world) build(ctx context.Context) (err error) {
	w.secrets = newCanaries()
	w.tally = newTally(&w.Plan)
	if err := os.WriteFile(w.pipeline(), []byte(w.Pipeline), 0o644); err != nil {
		return err
	}
	if err := w.buildDatabase(ctx); err != nil {
		return err
	}
	if w.Posts {
		if err := w.startReceiver(ctx); err != nil {
			return err
		}
	}
	w.host = "127.0.0.1"
	if w.hostNetwork, err = netns.New(consumers); err != nil {
		w.Log("cannot create network namespaces, blocking traffic at the proxies instead of unplugging cables: %v", err)
	} else {
		w.host = w.hostNetwork.Host
	}
	w.source = w.Source.make(w)
	if err := w.source.start(ctx); err != nil {
		return err
	}
	if w.clean, err = w.newRoute("commands", false); err != nil {
		return err
	}
	for i := range consumers {
		c := &consumer{name: string(rune('a' + i)), engine: w.Engine}
		if w.hostNetwork != nil {
			c.netns = w.hostNetwork.Namespaces[i]
		}
		random := rand.New(rand.NewPCG(w.Plan.Seed, uint64(100+i)))
		c.struck = func(f Fault) { w.struckCommit(ctx, c, f, random) }
		c.start = func(life int) (*process, error) { return w.begin(c, life) }
		if c.route, err = w.newRoute(c.name, !w.Posts); err != nil {
			return err
		}
		if w.Posts {
			w.receiver.consumers.Store(c.name, c)
		} else {
			c.commits.InterceptEach(c.connection)
			c.commits.Answers(c.answered)
		}
		w.consumers = append(w.consumers, c)
		if err := c.run(); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) buildDatabase(ctx context.Context) (err error) {
	if w.server, err = w.Engine.start(); err != nil {
		return err
	}
	w.db, err = w.Engine.prepare(ctx, w.server, w.secrets.password)
	return err
}

// newRoute makes a program's route to the source, to the database and to the receiver.
func (w *world) newRoute(program string, statements bool) (_ *route, err error) {
	r := &route{program: program}
	defer func() {
		if err != nil {
			r.close()
		}
	}()
	if r.log, err = w.source.route(); err != nil {
		return nil, err
	}
	target := w.server.Addr()
	if statements {
		if r.commits, err = w.Engine.proxy(target); err != nil {
			return nil, err
		}
		target, r.deliverLate = r.commits.Addr(), func() { r.commits.Deliver() }
	}
	if r.sql, err = tcplink.New(net.JoinHostPort(w.host, "0"), target); err != nil || !w.Posts {
		return r, err
	}
	r.deliverLate = w.receiver.deliver
	r.target, err = tcplink.New(net.JoinHostPort(w.host, "0"), w.receiver.addr)
	return r, err
}

func (w *world) pipeline() string { return filepath.Join(w.Dir, "flights.yaml") }

// env is the environment of a process that uses a route, with the secrets.
func (w *world) env(r *route) []string {
	env := w.source.env(r.log)
	if r.target != nil {
		env = append(env, "TARGET_URL=http://"+r.target.Addr()+"/"+r.program, "ORDER=partition")
	}
	return append(env, "DATABASE_URL="+w.Engine.url(neturl.UserPassword(role, w.secrets.password), r.sql.Addr()))
}

// close stops everything that still runs.
func (w *world) close() error {
	for _, c := range w.consumers {
		c.kill()
	}
	for _, c := range w.consumers {
		c.route.close()
	}
	w.clean.close()
	errs := []error{w.receiver.close()}
	w.deliveries.Wait()
	if w.source != nil {
		errs = append(errs, w.source.close())
	}
	if w.hostNetwork != nil {
		errs = append(errs, w.hostNetwork.Close())
	}
	if w.db != nil {
		w.db.Close()
	}
	if w.server != nil {
		errs = append(errs, w.server.Close())
	}
	return errors.Join(errs...)
}
