//go:build linux

package attack

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	neturl "net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // driver pgx

	"github.com/sluice-go/sluice/internal/proof/pgtest"
)

const (
	hubName    = "flights"
	keyName    = "attack"
	role       = "attacked"
	database   = "flights"
	partitions = 6
	consumers  = 3
)

// Config is what an attack needs.
type Config struct {
	Binary   string            // the program
	Pipeline string            // text of its pipeline file
	Records  []json.RawMessage // flights, which repeat
	Dir      string            // of all outputs; empty
	Plan     Plan
	// CatchUp is how long the consumers may take for what is left when the
	// faults are over. Default: 3 minutes.
	CatchUp time.Duration
	// Log takes lines of progress. Default: none.
	Log func(format string, args ...any)
}

// world is everything that runs.
type world struct {
	Config
	tally   *tally
	load    *load
	secrets *canaries

	pg          *pgtest.Server
	db          *sql.DB      // our own, past all proxies
	hostNetwork *hostNetwork // nil without network namespaces
	host        string       // where the processes find their links
	hub         *service
	hubAddr     string
	consumers   []*consumer
	sender      *route
	clean       *route // of commands; nothing is done to it
	sends       int

	deliveries sync.WaitGroup
	mu         sync.Mutex // guards what follows, and the commit faults' random numbers
	failing    int
}

// build sets everything up, up to consumers that run.
func (w *world) build(ctx context.Context) (err error) {
	w.secrets = newCanaries()
	w.tally = newTally(&w.Plan)
	w.load = &load{records: w.Records}
	if err := os.WriteFile(w.pipeline(), []byte(w.Pipeline), 0o644); err != nil {
		return err
	}
	if err := w.buildDatabase(ctx); err != nil {
		return err
	}
	w.host = "127.0.0.1"
	if w.hostNetwork, err = newHostNetwork(consumers); err != nil {
		w.Log("no network namespaces here, so cables are pulled at the proxies: %v", err)
	} else {
		w.host = w.hostNetwork.host
	}
	if err := w.buildHub(ctx); err != nil {
		return err
	}
	if w.clean, err = w.newRoute(false); err != nil {
		return err
	}
	if w.sender, err = w.newRoute(false); err != nil {
		return err
	}
	for i := range consumers {
		c := &consumer{name: string(rune('a' + i))}
		if w.hostNetwork != nil {
			c.netns = w.hostNetwork.namespaces[i]
		}
		random := rand.New(rand.NewPCG(w.Plan.Seed, uint64(100+i)))
		c.struck = func(f Fault) { w.struckCommit(ctx, c, f, random) }
		c.start = func(life int) (*process, error) { return w.begin(c, life) }
		if c.route, err = w.newRoute(true); err != nil {
			return err
		}
		c.commits.Intercept(c.intercept)
		c.commits.Answers(c.answered)
		w.consumers = append(w.consumers, c)
		if err := c.run(); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) buildDatabase(ctx context.Context) (err error) {
	if w.pg, err = pgtest.Start(nil); err != nil {
		return err
	}
	admin, err := sql.Open("pgx", w.pg.URL("postgres"))
	if err != nil {
		return err
	}
	defer admin.Close()
	for _, statement := range []string{
		"CREATE ROLE " + role + " LOGIN PASSWORD '" + w.secrets.password + "'",
		"CREATE DATABASE " + database + " OWNER " + role,
	} {
		if _, err := admin.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("make the database: %w", err)
		}
	}
	w.db, err = sql.Open("pgx", w.pg.URL(database))
	return err
}

func (w *world) buildHub(ctx context.Context) error {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	w.hubAddr = free.Addr().String()
	free.Close()
	w.hub = &service{start: func(life int) (*process, error) {
		return launch(w.Dir, fmt.Sprintf("hub-%04d", life), nil, w.Binary, "emulator", "serve", "--listen", w.hubAddr,
			"--data", filepath.Join(w.Dir, "hub"), "--hub", fmt.Sprintf("%s=%d", hubName, partitions), "--key", keyName+"="+w.secrets.key)
	}}
	if err := w.hub.run(); err != nil {
		return err
	}
	return w.hubReady(ctx)
}

// hubReady waits until the hub serves.
func (w *world) hubReady(ctx context.Context) error {
	var p *process
	if !until(ctx, time.Minute, func() bool { p, _ = w.hub.now(); return strings.HasPrefix(p.stdout(), "ready ") }) {
		return fmt.Errorf("the hub does not serve: %s", tail(p.stderr()))
	}
	return nil
}

// newRoute makes a way to both servers.
func (w *world) newRoute(statements bool) (_ *route, err error) {
	way := &route{}
	defer func() {
		if err != nil {
			way.close()
		}
	}()
	listen := net.JoinHostPort(w.host, "0")
	if way.hub, err = NewLink(listen, w.hubAddr); err != nil {
		return nil, err
	}
	target := w.pg.Addr()
	if statements {
		if way.commits, err = pgtest.NewProxy(target); err != nil {
			return nil, err
		}
		target = way.commits.Addr()
	}
	way.sql, err = NewLink(listen, target)
	return way, err
}

func (w *world) pipeline() string { return filepath.Join(w.Dir, "flights.yaml") }

// env is the environment of a process that goes that way, secrets and all.
func (w *world) env(by *route) []string {
	u := neturl.URL{Scheme: "postgres", User: neturl.UserPassword(role, w.secrets.password), Host: by.sql.Addr(), Path: database, RawQuery: "sslmode=disable"}
	return []string{
		"EVENTHUB_CONNECTION_STRING=Endpoint=sb://" + by.hub.Addr() + ";SharedAccessKeyName=" + keyName + ";SharedAccessKey=" + w.secrets.key + ";UseDevelopmentEmulator=true",
		"DATABASE_URL=" + u.String(),
	}
}

// close ends everything that still runs.
func (w *world) close() error {
	for _, c := range w.consumers {
		c.kill()
	}
	if w.hub != nil {
		w.hub.kill()
	}
	for _, c := range w.consumers {
		c.route.close()
	}
	w.sender.close()
	w.clean.close()
	w.deliveries.Wait()
	var errs []error
	if w.hostNetwork != nil {
		errs = append(errs, w.hostNetwork.close())
	}
	if w.db != nil {
		w.db.Close()
	}
	if w.pg != nil {
		errs = append(errs, w.pg.Close())
	}
	return errors.Join(errs...)
}
