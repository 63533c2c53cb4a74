//go:build linux

package attack

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/sluice-go/sluice/internal/proof/kafkatest"
	"github.com/sluice-go/sluice/internal/proof/tcplink"
)

// Kafka is a topic on a cluster of three brokers of Apache Kafka, to which transactional producers
// write.
var Kafka = &Source{
	Name:   "Apache Kafka, three brokers",
	faults: []Fault{KillBroker, PauseBroker, CutBroker, FillBroker, MoveLeader},
	make:   func(w *world) source { return &cluster{world: w, topic: hubName, ledger: &ledger{}} },
}

const (
	brokers   = 3
	producers = 3
	// routes are those of the consumers, of commands, and of the producers.
	routes = consumers + 2
	// brokerDisk is the size in MB of a broker's disk where the plan fills them.
	brokerDisk = 512
)

// cluster is a cluster of brokers. Each broker has a listener for each route, behind a link of that
// route, and others behind links for the brokers themselves.
type cluster struct {
	world       *world
	kafka       *kafkatest.Cluster
	topic       string
	routes      [routes][]*tcplink.Link
	given       int               // of the routes
	brokerLinks [][]*tcplink.Link // by broker
	sender      []*tcplink.Link
	disks       []*smallDisk // by broker; none if they are not filled
	ledger      *ledger
	// restarts are those of brokers that have ended.
	restarts []restart
}

func (c *cluster) start(ctx context.Context) (err error) {
	if err := c.boot(); err != nil {
		return err
	}
	if err := c.kafka.CreateTopic(ctx, c.topic, partitions); err != nil {
		return err
	}
	c.sender, err = c.route()
	return err
}

// boot starts the brokers.
func (c *cluster) boot() (err error) {
	cfg := c.config()
	if c.world.Plan.Strike[FillBroker] > 0 {
		cfg.Data = c.mount
	}
	if c.kafka, err = kafkatest.Start(cfg); err != nil {
		return err
	}
	c.world.secrets.kafka = c.kafka.Password()
	return nil
}

func (c *cluster) config() *kafkatest.Config {
	cfg := &kafkatest.Config{Brokers: brokers, Secure: true, Settings: []string{"num.network.threads=1"}}
	var mu sync.Mutex
	link := func(to *[]*tcplink.Link, host, target string) (string, error) {
		l, err := tcplink.New(net.JoinHostPort(host, "0"), target)
		if err != nil {
			return "", err
		}
		mu.Lock()
		defer mu.Unlock()
		*to = append(*to, l)
		return l.Addr(), nil
	}
	for i := range routes {
		cfg.Routes = append(cfg.Routes, func(_ int, target string) (string, error) {
			return link(&c.routes[i], c.world.host, target)
		})
	}
	c.brokerLinks = make([][]*tcplink.Link, brokers)
	cfg.BrokerRoute = func(broker int, target string) (string, error) {
		return link(&c.brokerLinks[broker-1], "127.0.0.1", target)
	}
	return cfg
}

// mount makes a disk of a broker.
func (c *cluster) mount(int) (string, error) {
	dir, err := os.MkdirTemp("", "sluice-attack-broker-")
	if err != nil {
		return "", err
	}
	disk, err := mountSmallDisk(dir, brokerDisk)
	if err != nil {
		return "", errors.Join(err, os.Remove(dir))
	}
	c.disks = append(c.disks, disk)
	return dir, nil
}

func (c *cluster) route() ([]*tcplink.Link, error) {
	if c.given == routes {
		return nil, errors.New("all routes to Kafka are in use")
	}
	c.given++
	return c.routes[c.given-1], nil
}

func (c *cluster) env(links []*tcplink.Link) []string {
	return []string{"KAFKA_BROKERS=" + strings.Join(addresses(links), ","), "KAFKA_TOPIC=" + c.topic, "KAFKA_PASSWORD=" + c.kafka.Password()}
}

func addresses(links []*tcplink.Link) (list []string) {
	for _, l := range links {
		list = append(list, l.Addr())
	}
	return list
}

// client makes a client that uses links.
func (c *cluster) client(links []*tcplink.Link, options ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(addresses(links)...), kgo.MetadataMinAge(250 * time.Millisecond),
		kgo.SASL(plain.Auth{User: kafkatest.User, Pass: c.kafka.Password()}.AsMechanism()),
	}, options...)...)
}

func (c *cluster) reset() {
	for _, l := range c.sender {
		l.Reset()
	}
}

// strike carries out a fault of a broker. Only one broker is in trouble at a time, so that the
// cluster must lose nothing that it has acknowledged.
func (c *cluster) strike(ctx context.Context, f Fault, random *rand.Rand) (err error) {
	for id := 1; id <= brokers; id++ {
		if c.kafka.Ended(id) {
			return fmt.Errorf("broker %d has ended by itself: %s", id, c.kafka.Log())
		}
	}
	broker := 1 + random.IntN(brokers)
	switch f {
	case KillBroker:
		if err := c.kafka.Kill(broker); err != nil {
			return err
		}
		sleep(ctx, randomTime(random, 0, 1500*time.Millisecond))
		return c.restart(broker)
	case PauseBroker: // up to twice the time after which the controllers take it for lost
		if err := c.kafka.Pause(broker); err != nil {
			return err
		}
		sleep(ctx, randomTime(random, 500*time.Millisecond, 10*time.Second))
		return c.kafka.Continue(broker)
	case CutBroker: // the others do not reach it, but clients do, and it reaches the others
		for _, l := range c.brokerLinks[broker-1] {
			l.Swallow()
		}
		sleep(ctx, randomTime(random, 500*time.Millisecond, 10*time.Second))
		for _, l := range c.brokerLinks[broker-1] {
			l.Recover()
		}
		return nil
	case FillBroker:
		return c.fill(ctx, broker)
	case MoveLeader:
		return c.move(ctx, random.IntN(partitions), broker)
	}
	return fmt.Errorf("%s is not a fault of a broker", f)
}

// move makes a broker the leader of a partition, as soon as it is in sync.
func (c *cluster) move(ctx context.Context, partition, to int) error {
	within, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if err := c.kafka.AwaitSynced(within, c.topic, partition); err != nil {
		return err
	}
	return c.kafka.Move(within, c.topic, partition, to)
}

// fill fills a broker's disk until the broker ends, which it does when it has no directory to write
// to, and starts it again when there is space.
func (c *cluster) fill(ctx context.Context, broker int) error {
	disk := c.disks[broker-1]
	if err := disk.fill(); err != nil {
		return err
	}
	if !await(ctx, 3*time.Minute, func() bool { return c.kafka.Ended(broker) }) {
		return fmt.Errorf("broker %d goes on with a full disk", broker)
	}
	if err := disk.free(brokerDisk); err != nil {
		return err
	}
	if err := c.kafka.Kill(broker); err != nil { // it has ended
		return err
	}
	return c.restart(broker)
}

func (c *cluster) misconfigured(ctx context.Context, database string) {
	w := c.world
	good := w.source.env(w.clean.log)
	password := c.kafka.Password()
	w.runMisconfigured(ctx, map[string][]string{
		"wrong-topic":    {good[0], "KAFKA_TOPIC=nothing", good[2], database},
		"wrong-password": {good[0], good[1], good[2] + "0", database},
		"as-broker":      {"KAFKA_BROKERS=" + password, good[1], good[2], database},
		"user-in-broker": {"KAFKA_BROKERS=" + kafkatest.User + ":" + password + "@" + addresses(w.clean.log)[0], good[1], good[2], database},
		"mixed-up":       {good[0], good[1], good[2], "DATABASE_URL=" + password},
	})
}

// settle waits until every broker is in sync and no transaction is under way.
func (c *cluster) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	for p := range partitions {
		if err := c.kafka.AwaitSynced(ctx, c.topic, p); err != nil {
			return err
		}
	}
	var why error
	ended := await(ctx, 3*time.Minute, func() bool {
		_, why = c.ends(ctx)
		return why == nil
	})
	if !ended {
		return fmt.Errorf("wait for the end of all transactions: %w", why)
	}
	return nil
}

// ends returns the ends of the partitions. It fails while a transaction holds back readers of
// committed events.
func (c *cluster) ends(ctx context.Context) ([]int64, error) {
	all, err := c.kafka.Admin().ListEndOffsets(ctx, c.topic)
	if err != nil {
		return nil, err
	}
	stable, err := c.kafka.Admin().ListCommittedOffsets(ctx, c.topic)
	if err != nil {
		return nil, err
	}
	list := make([]int64, len(all[c.topic]))
	for p := range list {
		end, _ := all.Lookup(c.topic, int32(p))
		committed, _ := stable.Lookup(c.topic, int32(p))
		if err := errors.Join(end.Err, committed.Err); err != nil {
			return nil, err
		}
		if end.Offset != committed.Offset {
			return nil, fmt.Errorf("partition %d ends at %d, and is stable up to %d", p, end.Offset, committed.Offset)
		}
		list[p] = end.Offset
	}
	return list, nil
}

func (c *cluster) stop(_ context.Context, r *Report) {
	r.SourceStarts = brokers + len(c.restarts)
	if len(c.restarts) > 0 {
		slowest := c.slowest()
		r.detail("slowest start of a broker that had ended", "%v, with a log of %.1f MB", slowest.took.Round(100*time.Millisecond), float64(slowest.log)/1e6)
	}
}

func (c *cluster) close() error {
	var err error
	if c.kafka != nil {
		err = c.kafka.Close()
	}
	for _, links := range append(c.brokerLinks, c.routes[:]...) {
		for _, l := range links {
			l.Close()
		}
	}
	for _, d := range c.disks {
		err = errors.Join(err, d.close(), os.Remove(d.dir))
	}
	return err
}
