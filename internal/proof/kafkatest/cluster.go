//go:build unix

package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-go/sluice/internal/proof/testserver"
)

// Config holds what has a default. The zero value is ready to use.
type Config struct {
	// Brokers is their number. Their ids count from 1. Default: 1.
	Brokers int
	// Settings are lines of server.properties, such as "message.max.bytes=2000000", of each broker.
	// They win over those of this package.
	Settings []string
	// Java are options of the Java machine, such as "-Xmx2g". They win over those of this package,
	// which start a broker fast and keep it small.
	Java []string
	// Secure adds the listeners of [Cluster.Secured].
	Secure bool
	// Routes are further ways of clients to each broker, each a listener of its own that a proxy
	// stands in front of; with Secure their clients authenticate as on SASL. A route is called with
	// the number of a broker and the address at which it will listen, and returns the address that
	// clients use, where it may not listen yet.
	Routes []func(broker int, target string) (address string, err error)
	// BrokerRoute is such a route for the brokers themselves, to the listener for replication and
	// to that of the controller of a broker. Default: no proxy.
	BrokerRoute func(broker int, target string) (address string, err error)
	// Data returns the directory of a broker's log, which must be empty. Default: one that goes
	// with the cluster.
	Data func(broker int) (dir string, err error)
}

// Cluster is a cluster of brokers. Its methods are safe for concurrent use, except that those of
// one broker must not run at the same time, and that Close must be the last.
type Cluster struct {
	cfg     Config
	id      string // of the cluster
	install *installation
	nodes   []*node
	secrets *secrets // nil: there are no secured listeners
	client  *kgo.Client
	admin   *kadm.Client
}

var program = testserver.Program{Name: "Kafka", Ready: "Kafka Server started", End: syscall.SIGKILL, Start: 3 * time.Minute}

// Start makes and starts a cluster, and returns once all brokers take requests. A nil cfg takes
// every default.
func Start(cfg *Config) (c *Cluster, err error) {
	if cfg == nil {
		cfg = &Config{}
	}
	install, err := find()
	if err != nil {
		return nil, err
	}
	for range 5 {
		c = &Cluster{cfg: *cfg, id: newID(), install: install}
		c.cfg.Brokers = max(1, cfg.Brokers)
		if err = c.start(); err == nil {
			return c, nil
		}
		err = errors.Join(err, c.Close())
		if !strings.Contains(err.Error(), "Address already in use") {
			break // else another process has taken a port in between
		}
	}
	return nil, err
}

func (c *Cluster) start() error {
	if c.cfg.Secure {
		var err error
		if c.secrets, err = newSecrets(); err != nil {
			return err
		}
	}
	for id := 1; id <= c.cfg.Brokers; id++ {
		n, err := c.newNode(id)
		if err != nil {
			return err
		}
		c.nodes = append(c.nodes, n)
	}
	for _, n := range c.nodes {
		if err := c.write(n); err != nil {
			return err
		}
	}
	var err error
	if c.client, err = kgo.NewClient(kgo.SeedBrokers(c.Brokers()...), kgo.MetadataMinAge(10*time.Millisecond)); err != nil {
		return err
	}
	c.admin = kadm.NewClient(c.client)
	var starts sync.WaitGroup
	errs := make([]error, len(c.nodes))
	for i := range c.nodes {
		starts.Go(func() { errs[i] = c.Restart(i + 1) })
	}
	starts.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := c.awaitBrokers(ctx); err != nil || c.secrets == nil {
		return err
	}
	return c.addUsers(ctx)
}

// Close kills the brokers and removes their directories.
func (c *Cluster) Close() error {
	var errs []error
	for _, n := range c.nodes {
		errs = append(errs, n.Close())
	}
	if c.admin != nil {
		c.admin.Close()
	}
	return errors.Join(errs...)
}

// ID is the cluster's id.
func (c *Cluster) ID() string { return c.id }

// Brokers are the addresses of the brokers, for clients without TLS or authentication.
func (c *Cluster) Brokers() []string { return c.addresses("CLIENT") }

// Route are the addresses of the brokers by a route of the configuration.
func (c *Cluster) Route(i int) []string { return c.addresses(routeName(i)) }

func (c *Cluster) addresses(listener string) (list []string) {
	for _, n := range c.nodes {
		list = append(list, n.listeners[listener].advertised)
	}
	return list
}

// Admin is a client for administration, which is closed with the cluster.
func (c *Cluster) Admin() *kadm.Client { return c.admin }

// Kill ends a broker by SIGKILL, and returns when it has ended.
func (c *Cluster) Kill(broker int) error {
	n := c.node(broker)
	n.answers.Store(false)
	return n.Stop()
}

// Restart starts a broker that was killed. It returns once the broker takes requests, with its
// partitions still to come.
func (c *Cluster) Restart(broker int) error {
	n := c.node(broker)
	err := n.Start(c.install.java, c.install.command(c.cfg.Java, n.File("server.properties"))...)
	n.answers.Store(err == nil)
	return err
}

// Ended reports whether a broker has ended by itself. Kill it before Restart.
func (c *Cluster) Ended(broker int) bool {
	return errors.Is(c.node(broker).Signal(syscall.Signal(0)), os.ErrProcessDone)
}

// Pause stops a broker by SIGSTOP. Its connections stay open, and nothing answers.
func (c *Cluster) Pause(broker int) error {
	n := c.node(broker)
	n.answers.Store(false)
	return n.Signal(syscall.SIGSTOP)
}

// Continue ends a Pause.
func (c *Cluster) Continue(broker int) error {
	n := c.node(broker)
	n.answers.Store(true)
	return n.Signal(syscall.SIGCONT)
}

// Data is the directory of a broker's log.
func (c *Cluster) Data(broker int) string { return c.node(broker).data }

// Pid is the process of a broker.
func (c *Cluster) Pid(broker int) (int, error) {
	text, err := os.ReadFile(c.node(broker).File("pid"))
	if err != nil {
		return 0, fmt.Errorf("broker %d does not run: %w", broker, err)
	}
	pid := 0
	_, err = fmt.Sscan(string(text), &pid)
	return pid, err
}

// Log returns the last lines of the brokers' logs.
func (c *Cluster) Log() string {
	var b strings.Builder
	for i, n := range c.nodes {
		fmt.Fprintf(&b, "\nbroker %d: %s", i+1, n.Log())
	}
	return b.String()
}

func (c *Cluster) node(broker int) *node { return c.nodes[broker-1] }

func (c *Cluster) awaitBrokers(ctx context.Context) error {
	return await(ctx, "all brokers are in the cluster", func() (bool, error) {
		list, err := c.admin.ListBrokers(ctx)
		return len(list) == len(c.nodes), err
	})
}

// await waits for a condition. What it returns names the condition and its last error.
func await(ctx context.Context, what string, ok func() (bool, error)) error {
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for {
		done, err := ok()
		if done && err == nil {
			return nil
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w", what, errors.Join(context.Cause(ctx), err))
		}
	}
}
