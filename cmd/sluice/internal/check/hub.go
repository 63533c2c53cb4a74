package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/eventhub"
)

// Bounds of what the checks read from a hub.
const (
	samplePartitions = 4
	sampleEvents     = 300 // of each of these partitions
)

// hubChecks are the checks of an event hub.
var hubChecks = []check[*hub]{
	{"hub.incarnation", "The hub's creation time and partitions do not change while it exists: Sluice recognises a recreated hub by the time.", 0, (*hub).checkIncarnation},
	{"hub.send", "A sent event that was acknowledged can be read, unchanged, once, and after those sent before it to the same partition.", 2 * time.Minute, (*hub).checkSend},
	{"hub.key", "Events with the same partition key go to the partition that the clients compute: a stage sends by it.", 2 * time.Minute, (*hub).checkKey},
	{"hub.numbers", "Sequence numbers of a partition rise by one: Sluice takes a gap for events that retention removed.", 2 * time.Minute, (*hub).checkNumbers},
	{"hub.next", "Opened after event X, a partition gives X+1 first: a checkpoint is such a position.", 2 * time.Minute, (*hub).checkNext},
	{"hub.last", "Opened after its last event, a partition gives nothing old: each restart of a consumer on a quiet partition does this.", 2 * time.Minute, (*hub).checkLast},
	{"hub.offset", "Opened after an event's offset or after its sequence number, a partition gives the same: checkpoints hold both.", 2 * time.Minute, (*hub).checkOffset},
	{"hub.earliest", "Opened at the earliest event, a partition gives the first one that it says it holds: a first start reads from there.", 2 * time.Minute, (*hub).checkEarliest},
	{"hub.runtime", "Runtime information shows an event as soon as it can be read: the lag is computed from it.", 2 * time.Minute, (*hub).checkRuntime},
	{"hub.pastend", "A position after the last event is refused in words that Sluice knows: it is how a checkpoint of another hub is noticed.", time.Minute, (*hub).checkPastEnd},
	{"hub.epoch.higher", "A reader with a higher epoch disconnects one with a lower epoch, in words that Sluice knows: the new owner of a partition relies on it.", 2 * time.Minute, (*hub).checkHigherEpoch},
	{"hub.epoch.lower", "A reader with a lower epoch is refused while one with a higher epoch is connected: an owner that lost its lease must not read on.", 2 * time.Minute, (*hub).checkLowerEpoch},
	{"hub.size", "A batch of 256 KB is accepted: Sluice packs as much as the link allows, at least that.", time.Minute, (*hub).checkSize},
	{"hub.throttle", "A request for runtime information that is over the quota is refused at once and answered again within seconds.", time.Minute, (*hub).checkThrottle},
	{"hub.speed", "Requests are answered within a second: leases and the lag are planned for that.", 2 * time.Minute, (*hub).measure},
}

// hub is an event hub that is checked.
type hub struct {
	opts   Options
	name   string
	group  string
	raw    rawHub
	source driver.Source
	closes func(context.Context)
	// quiet is how long nothing comes until a partition counts as read to its end.
	quiet time.Duration
	// comesWithin is how long an event that the partition holds, or a refusal, is waited for.
	comesWithin time.Duration
	// staleFor is how long a check waits for stale runtime information to catch up.
	staleFor time.Duration
	// stolenWithin is how long a reader may stay connected after one with a higher epoch.
	stolenWithin time.Duration
	// requests is how many are measured.
	requests int

	partitions []string
	samples    []sample[event] // those of the partitions that have events
	sampled    bool
	sent       []sending
	delay      time.Duration // the longest time between an acknowledgement and runtime information that shows the event
}

// sample is what was read of a partition.
type sample[E any] struct {
	partition string
	events    []E // from the earliest on
}

// OpenHub makes a [System] of an event hub. It does not connect.
func OpenHub(a HubAddress, opts Options) (System, error) {
	cfg := &eventhub.Config{ConsumerGroup: a.ConsumerGroup, TLSConfig: a.TLSConfig, OverWebSocket: a.OverWebSocket, Proxy: a.Proxy}
	var source *eventhub.Source
	var err error
	if a.Credential != nil {
		source, err = eventhub.NewWithCredential(a.Host, a.Hub, a.Credential, cfg)
	} else {
		source, err = eventhub.New(a.ConnectionString, a.Hub, cfg)
	}
	if err != nil {
		return nil, err
	}
	group := source.Group()
	a.Hub, a.ConsumerGroup = group.Topic, group.Name
	raw, err := dialHub(a)
	if err != nil {
		return nil, err
	}
	return &hub{
		opts: opts, name: fmt.Sprintf("event hub %s/%s, consumer group %s", group.Namespace, group.Topic, group.Name), group: group.Name, raw: patientHub{raw}, source: source, quiet: 3 * time.Second, comesWithin: 30 * time.Second, staleFor: 15 * time.Second, stolenWithin: 20 * time.Second, requests: 20,
		closes: func(ctx context.Context) { raw.close(ctx); _ = source.Close(ctx) },
	}, nil
}

func (h *hub) Name() string              { return h.name }
func (h *hub) Checks() []Check           { return bind(h, hubChecks) }
func (h *hub) Close(ctx context.Context) { h.closes(ctx) }

// Rights implements [System]. A link for sending is opened and nothing is sent.
func (h *hub) Rights(ctx context.Context) []Right {
	describe := Right{Name: "describe the hub (Listen)"}
	p, err := h.raw.describe(ctx)
	if err == nil && len(p.partitions) == 0 {
		err = errors.New("the hub has no partitions")
	}
	if describe.grant(err, "check the address and the hub's name; give the key the claim Listen, or the identity the role Azure Event Hubs Data Receiver"); err != nil {
		return []Right{describe}
	}
	h.partitions = p.partitions
	receive := Right{Name: "receive in consumer group " + h.group}
	_, err = h.raw.read(ctx, h.partitions[0], earliest, 1, h.quiet)
	receive.grant(err, "create the consumer group (az eventhubs eventhub consumer-group create --name "+h.group+" …) or name another with --consumer-group; give the key the claim Listen, or the identity the role Azure Event Hubs Data Receiver")
	rights := []Right{describe, receive}
	if h.opts.Send > 0 {
		send := Right{Name: "send to the hub"}
		_, err := h.raw.maxBatch(ctx)
		send.grant(err, "give the key the claim Send, or the identity the role Azure Event Hubs Data Sender; or run without --send")
		rights = append(rights, send)
	}
	return rights
}

// Creates implements [System].
func (h *hub) Creates() []string {
	list := []string{"readers in consumer group " + h.group + "; other readers of this group are disconnected meanwhile"}
	if h.opts.Send > 0 {
		list = append(list, fmt.Sprintf("%d events and one large one, whose bodies begin with {\"sluice-check\":%q; they cannot be removed and stay until retention removes them; other consumer groups get them too", h.opts.Send, h.opts.ID))
	}
	if h.opts.Load {
		list = append(list, "120 requests for runtime information within a second, which may exceed the namespace's quota of 50 a second for that time")
	}
	return list
}

// Prepare implements [System].
func (h *hub) Prepare(context.Context, *Ledger) error { return nil }

// sample reads the beginning of some partitions, once.
func (h *hub) sample(ctx context.Context) ([]sample[event], error) {
	if h.sampled {
		return h.samples, nil
	}
	h.samples = nil
	found, errs := make([]sample[event], len(h.partitions)), make([]error, len(h.partitions))
	places := make(chan struct{}, samplePartitions) // of partitions that are read at the same time
	var reading sync.WaitGroup
	for i, p := range h.partitions {
		reading.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			var events []event
			events, errs[i] = h.beginning(ctx, p)
			found[i] = sample[event]{p, events}
		})
	}
	reading.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	for _, s := range found {
		if len(s.events) > 0 && len(h.samples) < samplePartitions {
			h.samples = append(h.samples, s)
		}
	}
	h.sampled = len(h.samples) > 0
	return h.samples, nil
}

// beginning reads the first events of a partition. It waits for those that the hub says it holds.
func (h *hub) beginning(ctx context.Context, partition string) ([]event, error) {
	info, err := h.raw.runtime(ctx, partition)
	more := err == nil && !info.empty
	var list []event
	from := earliest
	for began := time.Now(); ; {
		got, err := h.raw.read(ctx, partition, from, sampleEvents-len(list), h.quiet)
		list = append(list, fresh(got, from)...)
		if n := len(list); n > 0 {
			from = startAfter(list[n-1].sequence)
			more = more && n < sampleEvents && list[n-1].sequence < info.last
		}
		if err != nil || !more || time.Since(began) > h.comesWithin {
			return list, err
		}
	}
}

// fresh leaves out the events up to that after which they were read: a hub may give it again.
func fresh(events []event, from azeventhubs.StartPosition) []event {
	return slices.DeleteFunc(events, func(e event) bool { return from.SequenceNumber != nil && e.sequence <= *from.SequenceNumber })
}

func (h *hub) eachSample(ctx context.Context, enough int, fn func(sample[event]) Finding, summary string) Finding {
	samples, err := h.sample(ctx)
	if err != nil {
		return failed("reading the hub", err)
	}
	return eachSample(samples, enough, fn, summary, len(h.partitions))
}

// eachSample calls fn with the sample of each partition that has enough events, of all at the same
// time. The worst finding counts; otherwise it is summary's.
func eachSample[E any](samples []sample[E], enough int, fn func(sample[E]) Finding, summary string, of int) Finding {
	samples = slices.DeleteFunc(slices.Clone(samples), func(s sample[E]) bool { return len(s.events) < enough })
	if len(samples) == 0 {
		return undecided("no partition has enough events").next("pass --send 100, which sends some, or name a hub or topic that has some")
	}
	found := make(List, len(samples))
	var looking sync.WaitGroup
	for i, s := range samples {
		looking.Go(func() { found[i] = fn(s) })
	}
	looking.Wait()
	worst := slices.MaxFunc(found, func(a, b Finding) int { return severity(a.State) - severity(b.State) })
	if worst.State != OK {
		return worst
	}
	return held("%s, in %d of %d partitions", summary, len(samples), of)
}

func (h *hub) checkIncarnation(ctx context.Context) Finding {
	first, err := h.raw.describe(ctx)
	if err != nil {
		return failed("describing the hub", err)
	}
	if err := pause(ctx, time.Second); err != nil {
		return failed("waiting", err)
	}
	second, err := h.raw.describe(ctx)
	if err != nil {
		return failed("describing the hub", err)
	}
	switch {
	case first.created.IsZero():
		return differed("the hub reports no creation time")
	case !first.created.Equal(second.created):
		return differed("the creation time was %v, then %v", first.created, second.created).next("run the command again, in case the hub was just recreated")
	case !slices.Equal(first.partitions, second.partitions):
		return differed("the partitions were %v, then %v", first.partitions, second.partitions).next("run the command again, in case partitions were just added")
	}
	geo := ""
	if second.geo {
		geo = "; the namespace is geo-replicated"
	}
	return held("created at %v, %d partitions%s", first.created.UTC().Format(time.RFC3339), len(first.partitions), geo)
}

// checkNumbers looks at what was read from the earliest event on.
func (h *hub) checkNumbers(ctx context.Context) Finding {
	return h.eachSample(ctx, 2, func(s sample[event]) Finding {
		for i := 1; i < len(s.events); i++ {
			if was, is := s.events[i-1].sequence, s.events[i].sequence; is != was+1 {
				return differed("partition %s: event %d came after %d", s.partition, is, was).next("check whether log compaction is on, which Sluice does not support")
			}
		}
		return held("")
	}, "each number is one above that before it")
}

// firstAfter compares what the hub gives after a position, and what Sluice's driver makes of it.
func (h *hub) firstAfter(ctx context.Context, s sample[event], x event) Finding {
	got, err := h.raw.read(ctx, s.partition, startAfter(x.sequence), 1, h.comesWithin)
	if err != nil {
		return failed(fmt.Sprintf("reading partition %s after event %d", s.partition, x.sequence), err)
	}
	read, err := h.read(ctx, s.partition, driver.Position{Sequence: x.sequence, Offset: x.offset}, 1, h.comesWithin)
	switch {
	case err != nil:
		return differed("partition %s: after event %d Sluice cannot read on: %s", s.partition, x.sequence, oneLine(err))
	case len(read) == 0 || read[0].Sequence != x.sequence+1:
		return differed("partition %s: after event %d Sluice gets %s instead of %d", s.partition, x.sequence, firstOf(read), x.sequence+1)
	case len(got) == 0:
		return tolerated("partition %s: after event %d the hub gave nothing for %v, though there is a next event", s.partition, x.sequence, h.comesWithin)
	case got[0].sequence < x.sequence+1:
		return tolerated("partition %s: after event %d the hub gave %d first, which Sluice drops", s.partition, x.sequence, got[0].sequence)
	case got[0].sequence > x.sequence+1:
		return differed("partition %s: after event %d the hub gave %d first", s.partition, x.sequence, got[0].sequence)
	}
	return held("")
}

func firstOf(events []*driver.Event) string {
	if len(events) == 0 {
		return "nothing"
	}
	return fmt.Sprint("event ", events[0].Sequence)
}

func (h *hub) checkNext(ctx context.Context) Finding {
	return h.eachSample(ctx, 2, func(s sample[event]) Finding {
		last := len(s.events) - 2
		for _, i := range slices.Compact([]int{0, last / 2, last}) {
			if o := h.firstAfter(ctx, s, s.events[i]); o.State != OK {
				return o
			}
		}
		return held("")
	}, "after event X comes X+1")
}

func (h *hub) checkLast(ctx context.Context) Finding {
	return h.eachSample(ctx, 1, func(s sample[event]) Finding {
		last, err := h.newest(ctx, s)
		if err != nil {
			return failed("reading partition "+s.partition, err)
		}
		got, err := h.raw.read(ctx, s.partition, startAfter(last.sequence), 10, h.quiet)
		if err != nil {
			return failed("reading partition "+s.partition, err)
		}
		read, err := h.read(ctx, s.partition, driver.Position{Sequence: last.sequence, Offset: last.offset}, 1, h.quiet)
		switch {
		case err != nil:
			return differed("partition %s: after its last event %d Sluice cannot wait for the next one: %s", s.partition, last.sequence, oneLine(err))
		case len(read) > 0 && read[0].Sequence != last.sequence+1:
			return differed("partition %s: after its last event %d Sluice gets %d", s.partition, last.sequence, read[0].Sequence)
		case len(got) > 0 && got[0].sequence <= last.sequence:
			return tolerated("partition %s: after its last event %d the hub gave %d, which Sluice drops", s.partition, last.sequence, got[0].sequence)
		case len(got) > 0 && got[0].sequence > last.sequence+1:
			return differed("partition %s: after event %d the hub gave %d", s.partition, last.sequence, got[0].sequence)
		}
		return held("")
	}, "after the last event comes nothing old")
}

// newest reads on from the sample to the partition's last event, or to one of a busy partition.
func (h *hub) newest(ctx context.Context, s sample[event]) (event, error) {
	last := s.events[len(s.events)-1]
	if info, err := h.raw.runtime(ctx, s.partition); err == nil && info.last > last.sequence {
		if got, err := h.raw.read(ctx, s.partition, startAfter(info.last-1), 1, h.quiet); err == nil && len(got) > 0 && got[0].sequence > last.sequence {
			last = got[0]
		}
	}
	const most = 20_000
	got, err := h.raw.read(ctx, s.partition, startAfter(last.sequence), most, h.quiet)
	for _, e := range got {
		if e.sequence > last.sequence {
			last = e
		}
	}
	return last, err
}

func (h *hub) checkOffset(ctx context.Context) Finding {
	return h.eachSample(ctx, 2, func(s sample[event]) Finding {
		i := (len(s.events) - 1) / 2
		x, want := s.events[i], s.events[i+1].sequence
		if x.offset == "" {
			return differed("partition %s: event %d has no offset", s.partition, x.sequence)
		}
		pos := startAfter(0)
		pos.SequenceNumber, pos.Offset = nil, &x.offset
		got, err := h.raw.read(ctx, s.partition, pos, 1, h.comesWithin)
		switch {
		case err != nil:
			return differed("partition %s: opening after offset %s fails: %s", s.partition, x.offset, oneLine(err))
		case len(got) == 0:
			return differed("partition %s: after offset %s of event %d nothing came for %v", s.partition, x.offset, x.sequence, h.comesWithin)
		case got[0].sequence != want:
			return differed("partition %s: after offset %s, of event %d, came event %d instead of %d", s.partition, x.offset, x.sequence, got[0].sequence, want)
		}
		return held("")
	}, "offset and sequence number open the same place")
}

func (h *hub) checkEarliest(ctx context.Context) Finding {
	return h.eachSample(ctx, 1, func(s sample[event]) Finding {
		const tries = 3
		var first int64
		var info runtimeInfo
		for range tries { // retention may move the beginning between the two requests
			got, err := h.raw.read(ctx, s.partition, earliest, 1, h.comesWithin)
			if err == nil && len(got) > 0 {
				first = got[0].sequence
				info, err = h.raw.runtime(ctx, s.partition)
			}
			switch {
			case err != nil:
				return failed("reading partition "+s.partition, err)
			case len(got) == 0:
				return undecided("partition %s: its events are gone", s.partition)
			case first == info.first:
				return held("")
			}
		}
		return tolerated("partition %s: the earliest event that came is %d, and the hub says that the first is %d; Sluice goes by what comes", s.partition, first, info.first)
	}, "the earliest event is the first one held")
}

func (h *hub) checkRuntime(ctx context.Context) Finding {
	o := h.eachSample(ctx, 1, func(s sample[event]) Finding {
		last, err := h.newest(ctx, s)
		if err != nil {
			return failed("reading partition "+s.partition, err)
		}
		began := time.Now()
		var stale time.Duration // when the information was asked for that did not show the event
		for {
			asked := time.Since(began) // the time that an answer takes does not count
			info, err := h.raw.runtime(ctx, s.partition)
			if info.last < last.sequence {
				stale = asked
			}
			switch {
			case err != nil:
				return failed("asking for runtime information", err)
			case info.last >= last.sequence && stale < time.Second:
				return held("")
			case info.last >= last.sequence:
				return tolerated("partition %s: runtime information was %v behind; Sluice uses it for the lag only", s.partition, stale.Round(100*time.Millisecond)).
					with(Measure{"runtime information behind", stale.Seconds(), "s"})
			case stale > h.staleFor:
				return tolerated("partition %s: event %d was read, and runtime information still says %d after %v; Sluice uses it for the lag only", s.partition, last.sequence, info.last, h.staleFor)
			}
			if err := pause(ctx, 500*time.Millisecond); err != nil {
				return failed("waiting", err)
			}
		}
	}, "runtime information shows the last event that was read")
	if o.State == OK && h.delay >= time.Second {
		return tolerated("runtime information did not show a sent event for %v after its acknowledgement; Sluice uses it for the lag only", h.delay.Round(100*time.Millisecond)).
			with(Measure{"runtime information behind", h.delay.Seconds(), "s"})
	}
	return o
}

// read reads through Sluice's driver. It returns what came, or nothing if nothing came within a
// time.
func (h *hub) read(ctx context.Context, partition string, from driver.Position, epoch int64, within time.Duration) ([]*driver.Event, error) {
	var events []*driver.Event
	err := again(ctx, func() error {
		r, err := h.source.Open(ctx, partition, from, epoch)
		if err != nil {
			return err
		}
		defer r.Close(context.WithoutCancel(ctx))
		limited, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		if events, err = r.Read(limited, 10); inVain(ctx, limited, err) {
			return nil // nothing came
		}
		return err
	})
	return events, err
}

// open opens a reader that stays open.
func (h *hub) open(ctx context.Context, partition string, at driver.Position, epoch int64) (r driver.Reader, err error) {
	err = again(ctx, func() error { r, err = h.source.Open(ctx, partition, at, epoch); return err })
	return r, err
}

func (h *hub) checkPastEnd(ctx context.Context) Finding {
	partition := h.partitions[0]
	info, err := h.raw.runtime(ctx, partition)
	if err != nil {
		return failed("asking for runtime information", err)
	}
	const far = 1 << 32
	position := driver.Position{Sequence: max(info.last, 0) + far}
	_, err = h.read(ctx, partition, position, 1, h.comesWithin)
	switch {
	case err == nil:
		return differed("partition %s: position %d, far after the last event, was accepted", partition, position.Sequence)
	case errors.Is(err, driver.ErrPastEnd):
		return held("a position far after the last event is refused")
	case ctx.Err() != nil || !isRefusal(err):
		return failed("opening a partition past its end", err)
	}
	return differed("partition %s: the refusal is not recognised: %s", partition, oneLine(err))
}

// isRefusal reports whether an error was the hub's answer, and not a lack of one.
func isRefusal(err error) bool {
	return !errors.Is(err, context.DeadlineExceeded) && !strings.Contains(err.Error(), "closed the connection")
}

// Epochs are far below those of leases, so that a real owner always wins.
const (
	epochLow = iota + 1
	epochMiddle
	epochHigh
)

// start is a position that every partition accepts.
func (h *hub) start(ctx context.Context, partition string) (driver.Position, error) {
	var at driver.Position
	err := again(ctx, func() (err error) {
		at, err = h.source.Seek(ctx, partition, driver.Start{Kind: driver.StartLatest}, epochLow)
		return err
	})
	return at, err
}

// checkHigherEpoch tries more than once, since a link can end for another reason.
func (h *hub) checkHigherEpoch(ctx context.Context) (o Finding) {
	for range driverTries {
		if o = h.displace(ctx); o.State == OK {
			break
		}
	}
	return o
}

// displace connects a reader, and then one with a higher epoch.
func (h *hub) displace(ctx context.Context) Finding {
	partition := h.partitions[0]
	at, err := h.start(ctx, partition)
	if err != nil {
		return failed("finding the end of partition "+partition, err)
	}
	lower, err := h.open(ctx, partition, at, epochMiddle)
	if err != nil {
		return failed("opening partition "+partition, err)
	}
	defer lower.Close(context.WithoutCancel(ctx))
	higher, err := h.open(ctx, partition, at, epochHigh)
	if err != nil {
		return differed("partition %s: a reader of epoch %d was refused while one of epoch %d was connected: %s", partition, epochHigh, epochMiddle, oneLine(err))
	}
	defer higher.Close(context.WithoutCancel(ctx))
	limited, cancel := context.WithTimeout(ctx, h.stolenWithin)
	defer cancel()
	began := time.Now()
	for {
		events, err := lower.Read(limited, 1000)
		switch {
		case errors.Is(err, driver.ErrStolen):
			return held("the reader of the lower epoch was disconnected after %v", time.Since(began).Round(time.Millisecond))
		case limited.Err() != nil:
			return differed("partition %s: the reader of epoch %d stayed connected for %v after one of epoch %d", partition, epochMiddle, h.stolenWithin, epochHigh)
		case err != nil:
			return differed("partition %s: the reader of the lower epoch ended with an error that Sluice does not recognise: %s", partition, oneLine(err))
		case len(events) == 0:
			return differed("partition %s: a read ended without events and without an error", partition)
		}
	}
}

func (h *hub) checkLowerEpoch(ctx context.Context) Finding {
	partition := h.partitions[0]
	at, err := h.start(ctx, partition)
	if err != nil {
		return failed("finding the end of partition "+partition, err)
	}
	higher, err := h.open(ctx, partition, at, epochHigh)
	if err != nil {
		return failed("opening partition "+partition, err)
	}
	defer higher.Close(context.WithoutCancel(ctx))
	_, err = h.read(ctx, partition, at, epochLow, h.comesWithin)
	switch {
	case errors.Is(err, driver.ErrStolen):
		return held("a reader of a lower epoch is refused")
	case err == nil:
		return differed("partition %s: a reader of epoch %d was accepted while one of epoch %d was connected", partition, epochLow, epochHigh)
	}
	return differed("partition %s: the refusal of a lower epoch is not recognised: %s", partition, oneLine(err))
}

// checkSize needs a link for sending, but sends only with --send.
func (h *hub) checkSize(ctx context.Context) Finding {
	if h.opts.Send == 0 {
		return skipped("not asked for: pass --send N")
	}
	size, err := h.raw.maxBatch(ctx)
	if err != nil {
		return failed("opening a link for sending", err)
	}
	measure := Measure{"largest event", float64(size), "bytes"}
	const least, overhead = 250_000, 1024
	if size < least {
		return differed("the largest event has %d bytes", size).with(measure)
	}
	body := append(h.body("size", 0), make([]byte, size-overhead)...)
	for i := range body {
		body[i] = cmp.Or(body[i], ' ')
	}
	if err := h.raw.send(ctx, h.partitions[0], "", [][]byte{body[:size-overhead]}); err != nil {
		return differed("the link allows events of %d bytes, and one of %d bytes is refused: %s", size, size-overhead, oneLine(err)).with(measure)
	}
	return held("an event of %d bytes is accepted", size-overhead).with(measure)
}

func (h *hub) measure(ctx context.Context) Finding {
	const most = 20_000
	times, err := roundTrips(ctx, "runtime information", h.requests, func(ctx context.Context) error {
		_, err := h.raw.runtime(ctx, h.partitions[0])
		return err
	})
	if err != nil {
		return failed("asking for runtime information", err)
	}
	o := held("%d requests for runtime information", h.requests).with(times...)
	if p50 := times[0].Value; p50 > 1000 {
		o = differed("half of the requests for runtime information take longer than %.0f ms", p50).with(times...).next("run the consumers in the hub's region")
	}
	if samples, err := h.sample(ctx); err == nil && len(samples) > 0 {
		began := time.Now()
		events, err := h.raw.read(ctx, samples[0].partition, earliest, most, h.quiet)
		took := time.Since(began)
		if len(events) < most {
			took -= h.quiet // spent waiting at the end
		}
		if err == nil && len(events) >= sampleEvents {
			o = o.with(Measure{"events read from one partition", perSecond(float64(len(events)), took), "per second"})
		}
	}
	return o
}
