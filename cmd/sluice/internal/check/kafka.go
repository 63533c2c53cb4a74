package check

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/kafka"
	"github.com/sluice-go/sluice/pipeline"
)

// kafkaChecks are the checks of a topic of Kafka.
var kafkaChecks = []check[*topic]{
	{"kafka.incarnation", "The topic's id and partitions do not change while it exists: Sluice recognises a recreated topic by the id.", 0, (*topic).checkIncarnation},
	{"kafka.send", "A sent event that was acknowledged can be read, unchanged, once, and after those sent before it to the same partition.", 2 * time.Minute, (*topic).checkSend},
	{"kafka.numbers", "Offsets of a partition rise: a checkpoint says that all events up to an offset are done.", 2 * time.Minute, (*topic).checkNumbers},
	{"kafka.next", "Opened after event X, a partition gives the event that came after X before: a checkpoint is such a position.", 2 * time.Minute, (*topic).checkNext},
	{"kafka.end", "A reader reaches the offset that the brokers report as the end, also where that is no event: lag and caught-up go by it.", 2 * time.Minute, (*topic).checkEnd},
	{"kafka.pastend", "A position after the last event is refused: it is how a checkpoint of another topic is noticed.", time.Minute, (*topic).checkPastEnd},
	{"kafka.epoch", "Events have a leader epoch: Sluice recognises by it that the log lost events that were done.", 2 * time.Minute, (*topic).checkEpoch},
	{"kafka.transactions", "No open transaction holds back committed events for long: a consumer waits behind it.", 2 * time.Minute, (*topic).checkTransactions},
	{"kafka.unclean", "unclean.leader.election.enable is false: otherwise the brokers may lose events that they have acknowledged.", 0, (*topic).checkUnclean},
	{"kafka.replicas", "Each partition has at least two replicas in sync, and min.insync.replicas is at least 2: otherwise the loss of one broker can lose events that were acknowledged.", 0, (*topic).checkReplicas},
	{"kafka.cleanup", "cleanup.policy is delete: otherwise compaction removes events that a consumer has not read yet, if a later event has the same key.", 0, (*topic).checkCleanup},
	{"kafka.password", "A password crosses the network over TLS only.", 0, (*topic).checkPassword},
	{"kafka.progress", "No program reads in the consumer group in which progress is published: Kafka refuses the offsets otherwise.", 0, (*topic).checkProgress},
	{"kafka.speed", "Requests are answered within a second: leases and the lag are planned for that.", 2 * time.Minute, (*topic).measure},
}

// topic is a topic of Kafka that is checked.
type topic struct {
	opts   Options
	c      *pipeline.KafkaConnection
	client *kafka.Client
	source *kafka.Source
	admin  *kadm.Client
	// quiet is how long a read waits for an event that the partition should hold.
	quiet time.Duration
	// heldFor is how long a transaction may stay open.
	heldFor time.Duration
	// requests is how many are measured.
	requests int

	partitions []string
	samples    []topicSample
}

type topicSample = sample[*driver.Event]

// OpenKafka makes a [System] of a topic of Kafka. It does not connect.
func OpenKafka(c *pipeline.KafkaConnection, opts Options) (System, error) {
	client, err := c.Open()
	if err != nil {
		return nil, err
	}
	source, err := client.Source(c.Topic, "sluice-check", &kafka.SourceConfig{ReadUncommitted: c.ReadUncommitted})
	if err != nil {
		return nil, errors.Join(err, client.Close(context.Background()))
	}
	return &topic{opts: opts, c: c, client: client, source: source, admin: kadm.NewClient(client.Requests()), quiet: 10 * time.Second, heldFor: time.Minute, requests: 20}, nil
}

func (k *topic) Name() string    { return fmt.Sprintf("topic %s of Kafka at %s", k.c.Topic, k.client) }
func (k *topic) Checks() []Check { return bind(k, kafkaChecks) }

func (k *topic) Close(ctx context.Context) {
	_ = k.source.Close(ctx)
	_ = k.client.Close(ctx)
}

// Rights implements [System].
func (k *topic) Rights(ctx context.Context) []Right {
	describe := Right{Name: "describe the topic"}
	t, err := k.source.Describe(ctx)
	if describe.grant(err, "check the brokers, tls, sasl and the topic's name; grant the operation Describe on the topic"); err != nil {
		return []Right{describe}
	}
	k.partitions = t.Partitions
	read := Right{Name: "read the topic"}
	err = k.mayRead(ctx, k.partitions[0])
	read.grant(err, "grant the operation Read on the topic")
	rights := []Right{describe, read}
	if group := k.c.ProgressGroup; group != "" {
		publish := Right{Name: "describe consumer group " + group}
		_, err := k.source.ConsumerGroup(ctx, group)
		publish.grant(err, "grant the operations Describe and Read on the group, or remove progress_group")
		rights = append(rights, publish)
	}
	return rights
}

// refusedWithin is how soon a broker refuses to read what the client has no right to.
const refusedWithin = 2 * time.Second

// mayRead reads an event. An empty partition answers nothing until an event comes, and refuses
// before.
func (k *topic) mayRead(ctx context.Context, partition string) error {
	events, err := k.readFirst(ctx, partition, 1)
	if err != nil || len(events) > 0 {
		return err
	}
	end, err := k.source.Seek(ctx, partition, driver.Start{Kind: driver.StartLatest}, 0)
	if err != nil {
		return err
	}
	r, err := k.source.Open(ctx, partition, end, 0)
	if err != nil {
		return err
	}
	defer r.Close(context.WithoutCancel(ctx))
	limited, cancel := context.WithTimeout(ctx, refusedWithin)
	defer cancel()
	if _, err = r.Read(limited, 1); limited.Err() != nil && ctx.Err() == nil {
		return nil
	}
	return err
}

// Creates implements [System].
func (k *topic) Creates() []string {
	if k.opts.Send == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%d events in partition 0, whose bodies begin with {\"sluice-check\":%q; they cannot be removed and stay until retention removes them; other consumers get them too", k.opts.Send, k.opts.ID)}
}

// Prepare implements [System].
func (k *topic) Prepare(context.Context, *Ledger) error { return nil }

// readFirst reads the first n events and markers of a partition, fewer if there are not so many.
func (k *topic) readFirst(ctx context.Context, partition string, n int) ([]*driver.Event, error) {
	start, err := k.source.Seek(ctx, partition, driver.Start{}, 0)
	if err != nil {
		return nil, err
	}
	end, err := k.source.Seek(ctx, partition, driver.Start{Kind: driver.StartLatest}, 0)
	if err != nil {
		return nil, err
	}
	return k.readAfter(ctx, partition, start, end.Sequence, n)
}

// readAfter reads up to n events and markers after a position and up to the number last, until
// nothing comes.
func (k *topic) readAfter(ctx context.Context, partition string, after driver.Position, last int64, n int) (events []*driver.Event, err error) {
	r, err := k.source.Open(ctx, partition, after, 0)
	if err != nil {
		return nil, err
	}
	defer r.Close(context.WithoutCancel(ctx))
	for at := after.Sequence; at < last && len(events) < n; at = events[len(events)-1].Sequence {
		limited, cancel := context.WithTimeout(ctx, k.quiet)
		more, err := r.Read(limited, n-len(events))
		quiet := limited.Err() != nil && ctx.Err() == nil
		cancel()
		if err != nil && quiet {
			break
		}
		if err != nil {
			return nil, err
		}
		events = append(events, more...)
	}
	return events, nil
}

// sample reads the beginning of some partitions, once.
func (k *topic) sample(ctx context.Context) ([]topicSample, error) {
	if len(k.samples) > 0 {
		return k.samples, nil
	}
	for _, p := range k.partitions {
		if len(k.samples) == samplePartitions {
			break
		}
		events, err := k.readFirst(ctx, p, sampleEvents)
		if err != nil {
			return nil, err
		}
		events = slices.DeleteFunc(events, func(e *driver.Event) bool { return e.Control })
		if len(events) > 0 {
			k.samples = append(k.samples, topicSample{p, events})
		}
	}
	return k.samples, nil
}

func (k *topic) eachSample(ctx context.Context, enough int, fn func(topicSample) Finding, summary string) Finding {
	samples, err := k.sample(ctx)
	if err != nil {
		return failed("reading the topic", err)
	}
	return eachSample(samples, enough, fn, summary, len(k.partitions))
}

func (k *topic) checkIncarnation(ctx context.Context) Finding {
	first, err := k.source.Describe(ctx)
	if err != nil {
		return failed("describing the topic", err)
	}
	second, err := k.source.Describe(ctx)
	switch {
	case err != nil:
		return failed("describing the topic", err)
	case first.Incarnation != second.Incarnation:
		return differed("the topic's id was %s, then %s", first.Incarnation, second.Incarnation)
	case len(second.Partitions) < len(first.Partitions):
		return differed("the topic had %d partitions, then %d", len(first.Partitions), len(second.Partitions))
	case first.Incarnation == kafka.NoTopicID:
		return tolerated("the brokers have no topic ids: a topic that was recreated is recognised only if a checkpoint is past its end, or by the leader epochs")
	}
	return held("id %s, %d partitions", first.Incarnation, len(first.Partitions))
}

func (k *topic) checkNumbers(ctx context.Context) Finding {
	return k.eachSample(ctx, 2, func(s topicSample) Finding {
		for i := 1; i < len(s.events); i++ {
			if was, is := s.events[i-1].Sequence, s.events[i].Sequence; is <= was {
				return differed("partition %s: event %d came after %d", s.partition, is, was)
			}
		}
		return held("")
	}, "each offset is above that before it")
}

func (k *topic) checkNext(ctx context.Context) Finding {
	return k.eachSample(ctx, 2, func(s topicSample) Finding {
		last := len(s.events) - 2
		for _, i := range slices.Compact([]int{0, last / 2, last}) {
			x, want := s.events[i], s.events[i+1].Sequence
			got, err := k.readAfter(ctx, s.partition, x.Position(), want, 1)
			switch {
			case err != nil:
				return differed("partition %s: after event %d Sluice cannot read on: %s", s.partition, x.Sequence, oneLine(err))
			case len(got) == 0 || got[0].Control || got[0].Sequence != want:
				return differed("partition %s: after event %d Sluice gets %s instead of %d", s.partition, x.Sequence, firstOf(got), want)
			}
		}
		return held("")
	}, "after event X comes the one that came before")
}

func (k *topic) checkEnd(ctx context.Context) Finding {
	const most = 200 // numbers before the end
	looked := 0
	for _, p := range k.partitions[:min(len(k.partitions), samplePartitions)] {
		end, err := k.source.Seek(ctx, p, driver.Start{Kind: driver.StartLatest}, 0)
		if err != nil {
			return failed("asking for the end of partition "+p, err)
		}
		b, err := k.source.Bounds(ctx, p)
		if err != nil {
			return failed("asking for the bounds of partition "+p, err)
		}
		if end.Sequence < b.First {
			continue
		}
		got, err := k.readAfter(ctx, p, driver.Position{Sequence: max(b.First-1, end.Sequence-most)}, end.Sequence, most)
		if err != nil {
			return failed("reading the end of partition "+p, err)
		}
		if len(got) == 0 || got[len(got)-1].Sequence < end.Sequence {
			return differed("partition %s: its end is %d, and a reader comes to %s", p, end.Sequence, firstOf(got[max(0, len(got)-1):]))
		}
		looked++
	}
	if looked == 0 {
		return undecided("the partitions are empty").next("pass --send 100, which sends events to the topic, or check a topic that has some")
	}
	return held("readers reach the end of %d of %d partitions", looked, len(k.partitions))
}

func (k *topic) checkPastEnd(ctx context.Context) Finding {
	partition := k.partitions[0]
	const far = 1 << 40
	_, err := k.readAfter(ctx, partition, driver.Position{Sequence: far}, far+1, 1)
	switch {
	case err == nil:
		return differed("partition %s: position %d, far after the last event, was accepted", partition, int64(far))
	case errors.Is(err, driver.ErrPastEnd):
		return held("a position far after the last event is refused")
	}
	return failed("opening a partition past its end", err)
}

func (k *topic) checkEpoch(ctx context.Context) Finding {
	return k.eachSample(ctx, 1, func(s topicSample) Finding {
		for _, e := range s.events {
			if e.Offset == "" {
				return tolerated("partition %s: event %d has no leader epoch, so Sluice does not notice if the log loses it after it was done", s.partition, e.Sequence).
					next("run brokers of Kafka 2.1 or later with the message format that they have by default")
			}
		}
		return held("")
	}, "events have a leader epoch")
}

func (k *topic) checkTransactions(ctx context.Context) Finding {
	began := time.Now()
	var first map[string]int64 // the last stable offsets of the partitions that are behind
	for {
		now, err := k.heldBack(ctx)
		if err != nil {
			return failed("asking for the ends of the partitions", err)
		}
		if first == nil {
			first = now
		}
		maps.DeleteFunc(first, func(p string, stable int64) bool { return now[p] != stable })
		if len(first) == 0 {
			return held("no transaction stays open")
		}
		if time.Since(began) >= k.heldFor {
			p := slices.Min(slices.Collect(maps.Keys(first)))
			return tolerated("partition %s: a transaction that began before offset %d has been open for more than %v; events after it are not read until it ends", p, first[p], k.heldFor).
				next("if no producer is at work on it, find it with kafka-transactions.sh find-hanging and abort it")
		}
		if err := pause(ctx, k.heldFor/20); err != nil {
			return failed("waiting", err)
		}
	}
}

// heldBack returns the last stable offsets of the partitions in which an open transaction holds
// back events.
func (k *topic) heldBack(ctx context.Context) (map[string]int64, error) {
	ends, err := k.admin.ListEndOffsets(ctx, k.c.Topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return nil, err
	}
	stable, err := k.admin.ListCommittedOffsets(ctx, k.c.Topic)
	if err == nil {
		err = stable.Error()
	}
	back := map[string]int64{}
	stable.Each(func(o kadm.ListedOffset) {
		if end, ok := ends.Lookup(o.Topic, o.Partition); ok && o.Offset < end.Offset {
			back[fmt.Sprint(o.Partition)] = o.Offset
		}
	})
	return back, err
}

// setting asks for a setting of the topic. The finding is that of a failure.
func (k *topic) setting(ctx context.Context, name string) (value string, failure *Finding) {
	found, err := k.admin.DescribeTopicConfigs(ctx, k.c.Topic)
	if err == nil && len(found) > 0 {
		err = found[0].Err
	}
	if err == nil && len(found) > 0 {
		for _, c := range found[0].Configs {
			if c.Key == name {
				return c.MaybeValue(), nil
			}
		}
	}
	o := undecided("the brokers do not say what %s is", name).next("look it up in the cluster's configuration")
	if err != nil {
		o = undecided("asking for %s: %s", name, oneLine(k.client.Explain("configuration", err))).next("grant the operation DescribeConfigs on the topic, or look it up in the cluster's configuration")
	}
	return "", &o
}

func (k *topic) checkUnclean(ctx context.Context) Finding {
	value, failure := k.setting(ctx, "unclean.leader.election.enable")
	switch {
	case failure != nil:
		return *failure
	case value != "false":
		return tolerated("unclean.leader.election.enable is %s: the brokers may lose acknowledged events; where Sluice notices that, the partition halts", value).
			next("set unclean.leader.election.enable=false for the topic")
	}
	return held("unclean.leader.election.enable is false")
}

func (k *topic) checkReplicas(ctx context.Context) Finding {
	listed, err := k.admin.ListTopics(ctx, k.c.Topic)
	if err == nil {
		err = listed.Error()
	}
	if err != nil {
		return failed("asking for the replicas", err)
	}
	least := int64(1 << 32)
	inSync := least
	for _, p := range listed[k.c.Topic].Partitions {
		least, inSync = min(least, int64(len(p.Replicas))), min(inSync, int64(len(p.ISR)))
	}
	minimum, failure := k.setting(ctx, "min.insync.replicas")
	switch {
	case least < 2:
		return tolerated("a partition has one replica: if its broker is lost, so are the events").next("use a replication factor of 3")
	case inSync < 2:
		return tolerated("a partition has %d replicas, of which one is in sync", least).next("look at the brokers")
	case failure != nil:
		return *failure
	case minimum == "1":
		return tolerated("min.insync.replicas is 1: an acknowledged event may be on one broker only").next("set min.insync.replicas=2 for the topic")
	}
	return held("%d replicas or more, min.insync.replicas is %s", least, minimum)
}

func (k *topic) checkCleanup(ctx context.Context) Finding {
	value, failure := k.setting(ctx, "cleanup.policy")
	switch {
	case failure != nil:
		return *failure
	case strings.Contains(value, "compact"):
		return tolerated("cleanup.policy is %s: a consumer that is behind gets of each key the last event for sure, the others perhaps", value).
			next("if every event counts, set cleanup.policy=delete, or a min.compaction.lag.ms that is longer than any outage")
	}
	return held("cleanup.policy is %s", value)
}

func (k *topic) checkPassword(context.Context) Finding {
	switch {
	case !k.c.PlainPassword:
		return skipped("no password is sent as it is")
	case !k.c.Encrypted:
		return tolerated("sasl.plain without tls: the password crosses the network as it is").next("use tls: true with a listener SASL_SSL, or sasl.scram")
	}
	return held("the password is sent over TLS")
}

func (k *topic) checkProgress(ctx context.Context) Finding {
	if k.c.ProgressGroup == "" {
		return skipped("the pipeline publishes no progress")
	}
	group, err := k.source.ConsumerGroup(ctx, k.c.ProgressGroup)
	switch {
	case err != nil:
		return failed("asking for the consumer group", err)
	case len(group.Members) > 0:
		return differed("consumer group %s has %d members, such as %s", k.c.ProgressGroup, len(group.Members), group.Members[0]).next("stop them, or name another progress_group")
	}
	return held("consumer group %s has no members", k.c.ProgressGroup)
}

func (k *topic) measure(ctx context.Context) Finding {
	times, err := roundTrips(ctx, "end of a partition", k.requests, func(ctx context.Context) error {
		_, err := k.source.Bounds(ctx, k.partitions[0])
		return err
	})
	if err != nil {
		return failed("asking for the end of a partition", err)
	}
	o := held("%d requests for the end of a partition", k.requests).with(times...)
	if p50 := times[0].Value; p50 > 1000 {
		o = differed("half of the requests for the end of a partition take longer than %.0f ms", p50).with(times...).next("run the consumers near the brokers")
	}
	return o
}
