package pipeline

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/config/strictyaml"
	"github.com/sluice-go/sluice/sluiceotel"
)

// System is the kind of a log. Its value is messaging.system in OpenTelemetry's
// conventions.
type System string

// The logs that a pipeline can read.
const (
	EventHubs System = sluiceotel.EventHubs
	Kafka     System = sluiceotel.Kafka
	Outbox    System = "outbox"
)

// Noun returns what the system calls a log: hub, topic or outbox.
func (s System) Noun() string {
	switch s {
	case Kafka:
		return "topic"
	case Outbox:
		return "outbox"
	}
	return "hub"
}

// Source is the log of a pipeline. Close ends its connections.
type Source interface {
	driver.Source
	// Group is what the source reads. Its namespace is empty if only the log knows it.
	Group() sluice.Group
	Close(ctx context.Context) error
}

// log is a log in the file.
type log interface {
	system() System
	// group is the key of checkpoints and dead letters. Its namespace is empty if
	// only the log knows it.
	group() sluice.Group
	// open returns the log as a consumer group reads it; an empty name is the file's
	// own group. It connects when it is first used.
	open(consumerGroup string) (Source, error)
	address() address
	// setConnections describes what the source connects to.
	setConnections(c *Connections)
}

// connections are those of logs: the namespace of hubs, the cluster of topics.
type connections struct {
	namespace namespace
	cluster   *kafkaCluster // nil: none is given
}

// address is where a log is. The zero value is no log.
type address struct {
	system System
	hosts  []string // one or more of them
	name   string
}

// is reports whether two addresses are of the same log: those of a Kafka cluster may
// name different brokers of it.
func (a address) is(b address) bool {
	return a.name != "" && a.system == b.system && a.name == b.name &&
		slices.ContainsFunc(a.hosts, func(host string) bool { return slices.Contains(b.hosts, host) })
}

// readSource reads where events come from.
func (r *reader) readSource(n strictyaml.Node) {
	var format *strictyaml.Node
	ok := n.Object(strictyaml.Keys{
		"eventhub":    r.readSourceHub,
		"kafka":       r.readSourceTopic,
		"outbox":      r.readSourceOutbox,
		"start":       r.readStart,
		"from":        func(n strictyaml.Node) { n.Text(&r.upstream) },
		"format":      func(n strictyaml.Node) { format = &n },
		"claim_check": r.readClaimCheck,
	})
	if format != nil { // last, because it depends on the log
		r.readFormat(*format)
	}
	switch start := &r.config.Start; {
	case !ok || !n.ExactlyOne("eventhub", "kafka", "outbox"):
	case r.System != EventHubs && start.Kind == driver.StartOffset:
		number, err := strconv.ParseInt(start.Offset, 10, 64)
		if err != nil || number < 0 {
			r.given.start.Fail("%s: an offset of %s is a whole number, such as offset 4096", r.given.start.Shown(), map[System]string{Kafka: "Kafka", Outbox: "an outbox"}[r.System])
			return
		}
		*start = sluice.FromSequence(number)
	}
}

// setSource sets the log that the pipeline reads.
func (r *reader) setSource(l log) {
	r.source, r.Group, r.System = l, l.group(), l.system()
}

// sameGroup reports whether two pipelines read a log in the same consumer group.
// Event Hubs compares names without regard to case, Kafka does not.
func (p *Pipeline) sameGroup(o *Pipeline) bool {
	if p.source == nil || o.source == nil || p.System != o.System || p.Group.Namespace != o.Group.Namespace {
		return false
	}
	if p.System != EventHubs {
		return p.Group == o.Group && p.source.address().is(o.source.address())
	}
	return strings.EqualFold(p.Group.Topic, o.Group.Topic) && strings.EqualFold(p.Group.Name, o.Group.Name)
}
