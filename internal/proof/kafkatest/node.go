//go:build unix

package kafkatest

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/sluice-go/sluice/internal/proof/freeport"
	"github.com/sluice-go/sluice/internal/proof/testserver"
)

// ErrMissing says that Kafka is not installed.
var ErrMissing = errors.New("the broker of Apache Kafka is not installed: run scripts/install-kafka")

// installation is what scripts/install-kafka has installed.
type installation struct{ dir, java, classes string }

func find() (*installation, error) {
	root, err := testserver.Repository()
	if err != nil {
		return nil, err
	}
	i := &installation{dir: filepath.Join(root, ".dev", "kafka")}
	if i.java, err = exec.LookPath("java"); err != nil {
		return nil, ErrMissing
	}
	if _, err := os.Stat(filepath.Join(i.dir, "versions")); err != nil {
		return nil, ErrMissing
	}
	jars, _ := filepath.Glob(filepath.Join(i.dir, "libs", "*.jar")) // the pattern is well-formed
	i.classes = strings.Join(jars, ":")                             // sorted, as in the script
	return i, nil
}

// command is the command line of a broker, after the path of Java. With the first compiler alone
// and an archive of classes a broker starts with half the time of a processor.
func (i *installation) command(options []string, properties string) []string {
	return append(append([]string{
		"-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData",
		"-XX:SharedArchiveFile=" + filepath.Join(i.dir, "classes.jsa"), "-Xshare:auto", "-Xlog:cds=off", "-Xlog:class+path=off",
		"-Dlog4j2.configurationFile=" + filepath.Join(i.dir, "log4j2.properties"),
		"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=file://" + filepath.Join(filepath.Dir(properties), keysFile),
		"-cp", i.classes,
	}, options...), "kafka.Kafka", properties)
}

// node is a broker that is a controller too.
type node struct {
	*testserver.Process
	id        int
	data      string
	listeners map[string]listener
	answers   atomic.Bool // it runs and is not paused
}

// listener is a port of a broker.
type listener struct {
	protocol   string // of Kafka: PLAINTEXT, SSL, …
	bound      string // the address at which the broker listens
	advertised string // the address that others use
}

func routeName(i int) string { return fmt.Sprintf("ROUTE%d", i) }

// newNode makes a broker's directory and finds its ports.
func (c *Cluster) newNode(id int) (_ *node, err error) {
	n := &node{id: id, listeners: map[string]listener{}}
	if n.Process, err = testserver.NewProcess(program); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.Close())
		}
	}()
	n.data = n.File("data")
	if c.cfg.Data != nil {
		if n.data, err = c.cfg.Data(id); err != nil {
			return nil, err
		}
	}
	var taken []io.Closer // all at once, so that they differ
	defer func() {
		for _, l := range taken {
			l.Close()
		}
	}()
	add := func(name, protocol string, route func(int, string) (string, error)) error {
		l, err := freeport.Listen()
		if err != nil {
			return err
		}
		taken = append(taken, l)
		bound := l.Addr().String()
		advertised := bound
		if route != nil {
			if advertised, err = route(id, bound); err != nil {
				return err
			}
		}
		n.listeners[name] = listener{protocol, bound, advertised}
		return nil
	}
	errs := []error{
		add("CONTROLLER", "PLAINTEXT", c.cfg.BrokerRoute),
		add("BROKER", "PLAINTEXT", c.cfg.BrokerRoute),
		add("CLIENT", "PLAINTEXT", nil),
	}
	protocol := "PLAINTEXT"
	if c.secrets != nil {
		protocol = secured[SASL]
	}
	for i, route := range c.cfg.Routes {
		errs = append(errs, add(routeName(i), protocol, route))
	}
	if c.secrets != nil {
		for name, protocol := range secured {
			errs = append(errs, add(string(name), protocol, nil))
		}
	}
	return n, errors.Join(errs...)
}

// newID is a random id in Kafka's form.
func newID() string {
	id := make([]byte, 16)
	rand.Read(id)
	id[0] &= 0x7f // an id that starts with - is taken for an option by Kafka's tools
	return base64.RawURLEncoding.EncodeToString(id)
}

// write writes a broker's properties, and its directory as Kafka's tool formats it.
func (c *Cluster) write(n *node) error {
	if err := os.MkdirAll(n.data, 0o755); err != nil {
		return err
	}
	boot, err := os.ReadFile(filepath.Join(c.install.dir, "bootstrap.checkpoint"))
	if err != nil {
		return err
	}
	files := map[string][]byte{
		filepath.Join(n.data, "bootstrap.checkpoint"): boot,
		filepath.Join(n.data, "meta.properties"):      fmt.Appendf(nil, "version=1\ncluster.id=%s\nnode.id=%d\ndirectory.id=%s\n", c.id, n.id, newID()),
	}
	lines := append(c.properties(n), c.cfg.Settings...)
	if c.secrets != nil {
		files[n.File(keysFile)] = c.secrets.keys
		lines = append(c.secrets.properties(n.listeners, n.File(keysFile)), lines...)
	}
	files[n.File("server.properties")] = []byte(strings.Join(lines, "\n") + "\n")
	for path, text := range files {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// properties are the lines of server.properties. A later line wins over an earlier one.
func (c *Cluster) properties(n *node) []string {
	var voters, bound, advertised, protocols []string
	for _, other := range c.nodes {
		voters = append(voters, fmt.Sprintf("%d@%s", other.id, other.listeners["CONTROLLER"].advertised))
	}
	for name, l := range n.listeners {
		bound = append(bound, name+"://"+l.bound)
		protocols = append(protocols, name+":"+l.protocol)
		if name != "CONTROLLER" {
			advertised = append(advertised, name+"://"+l.advertised)
		}
	}
	replicas, synced := min(3, c.cfg.Brokers), min(2, c.cfg.Brokers)
	return []string{
		"process.roles=broker,controller",
		fmt.Sprintf("node.id=%d", n.id),
		"controller.quorum.voters=" + strings.Join(voters, ","),
		"listeners=" + strings.Join(bound, ","),
		"advertised.listeners=" + strings.Join(advertised, ","),
		"listener.security.protocol.map=" + strings.Join(slices.Sorted(slices.Values(protocols)), ","),
		"inter.broker.listener.name=BROKER",
		"controller.listener.names=CONTROLLER",
		"log.dirs=" + n.data,

		"auto.create.topics.enable=false",
		fmt.Sprintf("default.replication.factor=%d", replicas),
		fmt.Sprintf("min.insync.replicas=%d", synced),
		"offsets.topic.num.partitions=2",
		fmt.Sprintf("offsets.topic.replication.factor=%d", replicas),
		"transaction.state.log.num.partitions=2",
		fmt.Sprintf("transaction.state.log.replication.factor=%d", replicas),
		fmt.Sprintf("transaction.state.log.min.isr=%d", synced),
		"group.initial.rebalance.delay.ms=0",
		"transaction.abort.timed.out.transaction.cleanup.interval.ms=500",

		// A broker that is lost is noticed soon. The interval is also the time limit of a heartbeat
		// and of a registration: on a busy machine, brokers with a shorter one are never done with
		// their start.
		"broker.heartbeat.interval.ms=1500",
		"broker.session.timeout.ms=5000",
		"replica.lag.time.max.ms=6000",
		"controller.quorum.fetch.timeout.ms=3000",

		// A broker ends after this time if it has not found the others, which may need longer to
		// start on a busy machine. That of the program is the one that counts.
		fmt.Sprintf("initial.broker.registration.timeout.ms=%d", program.Start.Milliseconds()),

		// What has to be deleted or compacted is so at once.
		"log.initial.task.delay.ms=200",
		"log.retention.check.interval.ms=500",
		"log.segment.delete.delay.ms=200",
		"log.cleaner.backoff.ms=200",

		"num.network.threads=2",
		"num.io.threads=4",
		"background.threads=2",
		"log.cleaner.threads=1",
		"log.cleaner.dedupe.buffer.size=4194304",
		"log.index.size.max.bytes=1048576",
	}
}
