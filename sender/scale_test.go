package sender_test

import (
	"context"
	"math"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"github.com/Azure/go-amqp"

	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/internal/partitionkey"
	"github.com/sluice-go/sluice/sender"
)

// scale is the factor for the number of messages: SENDER_SCALE=20 makes it a
// million to a hub and a hundred thousand to a queue.
func scale() int64 {
	n, err := strconv.ParseInt(os.Getenv("SENDER_SCALE"), 10, 64)
	if err != nil || n < 1 {
		return 1
	}
	return n
}

// packing counts the batches that messages need at least if they are packed in
// their order. It counts the bytes of each message alone, without the envelope of
// the batch.
type packing struct {
	limit, room int
	batches     int64
}

func (p *packing) add(size int) {
	if size > p.room {
		p.batches++
		p.room = p.limit
	}
	p.room -= size
}

// sectionOf is how many bytes a message takes in a batch.
func sectionOf(t testing.TB, m sender.Message) int {
	t.Helper()
	wire := amqp.Message{
		Properties:            &amqp.MessageProperties{MessageID: m.MessageID, ContentType: &m.ContentType},
		ApplicationProperties: m.Properties, Data: [][]byte{m.Body},
	}
	if m.Key != "" {
		wire.Annotations = amqp.Annotations{"x-opt-partition-key": m.Key}
	}
	if m.SessionID != "" {
		wire.Properties.GroupID = &m.SessionID
	}
	whole, err := wire.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	if len(whole) < 256 {
		return len(whole) + 5
	}
	return len(whole) + 8
}

// checkAllAccepted checks that all messages were accepted at the first attempt.
func checkAllAccepted(t testing.TB, report sender.Report, count int64) {
	t.Helper()
	if len(report.Accepted) != 1 || report.Accepted[0] != (sender.IndexRange{First: 0, Last: count - 1}) || report.Retries+report.TooLarge != 0 {
		t.Fatalf("%+v", report)
	}
}

// checkBatchCount compares the report with what arrived on the wire, and the
// number of batches with that of the best packing of each partition.
func checkBatchCount(t testing.TB, report sender.Report, wire emulator.IncomingStats, limit int, best []packing, took time.Duration) {
	t.Helper()
	if wire.Messages != report.Batches || wire.Bytes != report.Bytes {
		t.Errorf("%d batches of %d bytes reported, %d of %d arrived", report.Batches, report.Bytes, wire.Messages, wire.Bytes)
	}
	if wire.TooLarge > 0 || wire.Largest > int64(limit) {
		t.Errorf("the largest batch of %d bytes, %d too large", wire.Largest, wire.TooLarge)
	}
	fewest := int64(0)
	for _, p := range best {
		fewest += p.batches
	}
	t.Logf("%d messages in %d batches, %d at best; %d bytes on the wire, %.1f %% full; %.1f s",
		report.Messages, report.Batches, fewest, wire.Bytes, float64(wire.Bytes)/float64(wire.Messages)/float64(limit)*100, took.Seconds())
	if fewest == 0 || report.Batches*100 > fewest*102 {
		t.Errorf("%d batches, more than 2 %% above the best packing's %d", report.Batches, fewest)
	}
}

// TestSendAll sends a mix of sizes to a hub: all messages are stored once, in
// order by key, in at most 2 % more batches than the best packing of each
// partition.
func TestSendAll(t *testing.T) {
	const partitions, limit = 4, 1 << 20
	cfg := &emulator.Config{AsAzure: withoutBusy()}
	if scale() > 1 {
		cfg.Dir = t.TempDir()
	}
	srv := start(t, partitions, cfg)
	mix := traffic{count: 50_000 * scale(), keys: 5000, size: mixed}
	began := time.Now()
	report, err := sender.New(open(t, srv, nil), nil).SendAll(testContext(t), mix.all())
	took := time.Since(began)
	if err != nil {
		t.Fatal(err)
	}
	wire := srv.IncomingStats(hub)
	checkAllAccepted(t, report, mix.count)
	checkReport(t, report, inventory(t, srv, mix, partitions))
	best := make([]packing, partitions)
	for p := range best {
		best[p].limit = limit
		eachStored(t, srv, p, func(e *azeventhubs.ReceivedEventData) {
			i, _ := strconv.ParseInt(*e.MessageID, 10, 64)
			best[p].add(sectionOf(t, mix.message(i)))
		})
	}
	checkBatchCount(t, report, wire, limit, best, took)
}

// TestSendAllToQueue does the same with a queue and sessions, which are
// distributed over the writers as keys are over partitions.
func TestSendAllToQueue(t *testing.T) {
	const writers, limit = 2, 256 << 10
	srv := startBus(t, &emulator.ServiceBusConfig{AsAzure: withoutBusy()})
	mix := traffic{count: 5000 * scale(), keys: 500, size: mixed}.sessions()
	b := openBus(t, srv.ConnectionString(), queue, &sender.ServiceBusConfig{Writers: writers})
	began := time.Now()
	report, err := sender.New(b, nil).SendAll(testContext(t), mix.all())
	took := time.Since(began)
	if err != nil {
		t.Fatal(err)
	}
	wire := srv.IncomingStats(queue)
	checkAllAccepted(t, report, mix.count)
	checkReport(t, report, busInventory(t, srv, mix))
	best := make([]packing, writers)
	for m := range mix.all() {
		p := &best[partitionkey.EventHubsPartition(m.SessionID, writers)]
		p.limit = limit
		p.add(sectionOf(t, m))
	}
	checkBatchCount(t, report, wire, limit, best, took)
}

// sizesHidden hides the sizes of a transport, and counts the refusals.
type sizesHidden struct {
	sender.Transport
	refusals atomic.Int64
}

func (b *sizesHidden) Send(ctx context.Context, partition string, messages []sender.Message) (sender.Outcome, error) {
	batch, err := b.NewBatch(ctx, partition)
	if err != nil {
		return sender.OutcomeBusy, err
	}
	for i := range messages {
		if err := batch.Add(&messages[i]); err != nil {
			return sender.OutcomeRejected, err
		}
	}
	outcome, err := b.Transport.Send(ctx, batch)
	if outcome == sender.OutcomeTooLarge {
		b.refusals.Add(1)
	}
	return outcome, err
}

// TestSendAllByEstimate sends to a queue without knowing sizes: few batches are
// refused, and all messages are stored once.
func TestSendAllByEstimate(t *testing.T) {
	srv := startBus(t, &emulator.ServiceBusConfig{AsAzure: withoutBusy()})
	mix := traffic{count: 5000 * scale(), keys: 500, size: mixed}.sessions()
	// The limit of the link holds, whatever MaxBytes says.
	b := &sizesHidden{Transport: openBus(t, srv.ConnectionString(), queue, &sender.ServiceBusConfig{MaxBytes: 1 << 30, Writers: 1})}
	e, err := sender.NewEstimator(b, nil)
	if err != nil {
		t.Fatal(err)
	}
	report, err := sender.New(e, nil).SendAll(testContext(t), mix.all())
	if err != nil || report.Messages != mix.count || report.Retries > 0 {
		t.Fatalf("%d of %d accepted, %d retries: %v", report.Messages, mix.count, report.Retries, err)
	}
	checkReport(t, report, busInventory(t, srv, mix))
	limit, header := e.Learned()
	t.Logf("%d batches, %d refusals; learned a limit of %d and a header of %d", report.Batches, report.TooLarge, limit, header)
	if refusals := b.refusals.Load(); report.TooLarge != refusals || refusals == 0 {
		t.Errorf("%d refusals reported, there were %d", report.TooLarge, refusals)
	}
	// As [sender.Estimator] promises: these, and for each the batch that was in flight and that
	// which filled.
	lessons := 1 + 3 + int64(math.Log(262_000/float64(limit))/0.051+math.Ceil(math.Log(float64(header)/54)/math.Log(1.25)))
	if most := lessons * 3; report.TooLarge > most {
		t.Errorf("%d refusals for %d lessons, at most %d", report.TooLarge, lessons, most)
	}
	if wire := srv.IncomingStats(queue); report.Batches != wire.Messages-wire.TooLarge {
		t.Errorf("%d batches reported, %d arrived, %d too large", report.Batches, wire.Messages, wire.TooLarge)
	}
}
