package pipeline

import (
	"crypto/tls"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/config/strictyaml"
	"github.com/sluice-go/sluice/kafka"
)

// kafkaTopic is a topic of Kafka in the file, as a source.
type kafkaTopic struct {
	cluster         *kafkaCluster
	name            string
	pattern         *topicPattern    // whose topics are not known yet; nil: name is one
	place           strictyaml.Place // of the pattern
	consumerGroup   string
	namespace       string // of checkpoints; empty: the cluster's id
	readUncommitted bool
	progressGroup   string // the group of Kafka in which progress is published; empty: none
	prefetchBytes   int    // 0: the default of package kafka, as for the next
	maxRecordBatch  int
	headers         kafka.HeaderValues // empty: by the brokers' domain
}

// defaultGroup is the name of a topic's checkpoints if the file has none.
const defaultGroup = "sluice"

// readSourceTopic reads source.kafka.
func (r *reader) readSourceTopic(n strictyaml.Node) {
	r.places.source = n.Place()
	t := &kafkaTopic{consumerGroup: defaultGroup}
	var isolation string
	c := r.readCluster(n, strictyaml.Keys{
		"topics":               func(n strictyaml.Node) { t.name = r.logs.read(n, readTopicName) },
		"topic_pattern":        func(n strictyaml.Node) { r.readPattern(n, t) },
		"topic":                func(n strictyaml.Node) { readTopicName(n, &t.name) },
		"group":                func(n strictyaml.Node) { n.Text(&t.consumerGroup) },
		"checkpoint_namespace": func(n strictyaml.Node) { n.Text(&t.namespace) },
		"prefetch": func(n strictyaml.Node) {
			n.Object(strictyaml.Keys{"bytes": func(n strictyaml.Node) { n.SizeIn(&t.prefetchBytes, minPrefetch, maxPrefetch) }})
		},
		"max_record_batch": func(n strictyaml.Node) { n.SizeIn(&t.maxRecordBatch, minPrefetch, maxPrefetch) },
		"isolation":        func(n strictyaml.Node) { n.OneOf(&isolation, "read_committed", "read_uncommitted") },
		"headers": func(n strictyaml.Node) {
			n.OneOf((*string)(&t.headers), string(kafka.AMQPHeaders), string(kafka.BytesHeaders))
		},
		"progress_group": func(n strictyaml.Node) {
			r.given.progressGroup, r.places.progress = &n, n.Place()
			n.Text(&t.progressGroup)
		},
	})
	if c == nil || !n.ExactlyOne("topic", "topics", "topic_pattern") {
		return
	}
	t.cluster, t.readUncommitted = c, isolation == "read_uncommitted"
	r.shared.cluster = c // the default of the target
	r.setSource(t)
}

const maxClientID = 200 // bytes, the limit of package kafka

var topicName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,249}$`)

// readTopicName reads a name as Kafka allows it.
func readTopicName(n strictyaml.Node, to *string) {
	var name string
	if !n.Text(&name) {
		return
	}
	if !topicName.MatchString(name) || name == "." || name == ".." {
		n.Fail("%s: not a name of a topic: write up to 249 letters, digits, dots, - and _", n.Shown())
		return
	}
	*to = name
}

func (t *kafkaTopic) system() System { return Kafka }

func (t *kafkaTopic) group() sluice.Group {
	return sluice.Group{Namespace: t.namespace, Topic: t.name, Name: t.consumerGroup}
}

func (t *kafkaTopic) address() address { return address{Kafka, t.cluster.brokers, t.name} }

// kafkaCluster is a cluster of Kafka in the file, with the credentials for it.
type kafkaCluster struct {
	brokers []string // host:port, in lower case
	tls     *tls.Config
	sasl    *kafkaSASL   // nil: none
	config  kafka.Config // the other settings

	mu     sync.Mutex // held while a client is opened or closed
	client *kafka.Client
	users  int // of client
}

// readCluster reads the cluster, and more keys of the same mapping. It returns the shared cluster
// if the mapping names none, and nil if there is a problem.
func (r *reader) readCluster(n strictyaml.Node, more strictyaml.Keys, required ...string) *kafkaCluster {
	own := &kafkaCluster{}
	if !own.read(n, more, required...) {
		return nil
	}
	if len(own.brokers) > 0 {
		if known := r.clusters[n.Place()]; known != nil {
			return known
		}
		if r.clusters != nil {
			r.clusters[n.Place()] = own
		}
		return own
	}
	if r.shared.cluster == nil {
		n.Fail("brokers are missing: write ${KAFKA_BROKERS}, or host:port, host:port")
	}
	return r.shared.cluster
}

// read reads the cluster. All keys of a cluster may be missing.
func (c *kafkaCluster) read(n strictyaml.Node, more strictyaml.Keys, required ...string) bool {
	keys := strictyaml.Keys{
		"brokers": c.readBrokers,
		"tls":     func(n strictyaml.Node) { c.tls = readTLS(n) },
		"sasl":    c.readSASL,
		"client_id": func(n strictyaml.Node) {
			var id string
			if n.Text(&id) && len(id) > maxClientID {
				n.Fail("%s: has %d bytes: at most %d", n.Shown(), len(id), maxClientID)
				return
			}
			c.config.ClientID = id
		},
		"timeout": func(n strictyaml.Node) { n.DurationIn(&c.config.Timeout, minTimeout, maxTimeout) },
	}
	maps.Copy(keys, more)
	if !n.Object(keys, required...) {
		return false
	}
	if len(c.brokers) == 0 && slices.ContainsFunc([]string{"tls", "sasl", "client_id", "timeout"}, n.Has) {
		return n.Fail("tls, sasl, client_id and timeout go with brokers: write brokers here too")
	}
	if c.sasl != nil && c.sasl.entra {
		if n.Has("tls") && c.tls == nil {
			return n.Fail("sasl.entra needs tls: true: Event Hubs accepts no other connections")
		}
		if c.tls == nil {
			c.tls = newTLS()
		}
	}
	return true
}

func (c *kafkaCluster) readBrokers(n strictyaml.Node) {
	var text string
	if !n.Text(&text) {
		return
	}
	brokers, err := kafka.ParseBrokers(strings.ToLower(text))
	if err != nil {
		n.Fail("%w", err)
		return
	}
	slices.Sort(brokers)
	c.brokers = slices.Compact(brokers)
}
