package targetaudit

import (
	"fmt"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/emulator"
)

// set moves a partition's checkpoint after an event.
func (w *world) set(partition string, sequence int64) {
	w.t.Helper()
	ctx := w.t.Context()
	parts, err := w.pipeline.OpenExisting(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	defer parts.Close(ctx)
	topic, err := w.hub.Describe(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	at, err := w.hub.Seek(ctx, partition, driver.Start{Kind: driver.StartSequence, Sequence: sequence + 1}, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := parts.Checkpoints.Reset(ctx, w.group, partition, topic.Incarnation, at, "set"); err != nil {
		w.t.Fatal(err)
	}
}

// sendSelected appends events n to m-1, in turn to both partitions. Each tenth is not selected.
func (w *world) sendSelected(n, m int) {
	for i := n; i < m; i++ {
		w.hub.Append(fmt.Sprint(i%2), &sluice.Event{Body: fmt.Appendf(nil, `{"n":%d,"tenth":"%t"}`, i, i%10 == 0), Key: fmt.Sprint(i)})
	}
}

// TestIntoHub: events that a checkpoint has passed without a message are lost, those that it was
// moved back before are duplicated, and the messages of another stage count for nothing.
func TestIntoHub(t *testing.T) {
	t.Parallel()
	srv, err := emulator.Start([]emulator.Hub{{Name: "next", Partitions: 2}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	auditChain(t, "eventhub: {connection: \"${NEXT}\", hub: next, only: {body.tenth: \"false\"}}", "NEXT="+srv.ConnectionString())
}

// TestIntoKafka is TestIntoHub with a topic as the target.
func TestIntoKafka(t *testing.T) {
	t.Parallel()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, "next"))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	auditChain(t, "kafka: {brokers: \"${NEXT}\", topic: next, only: {body.tenth: \"false\"}}", "NEXT="+cluster.ListenAddrs()[0])
}

func auditChain(t *testing.T, target, env string) {
	t.Helper()
	file := "leases: {sql: \"${DATABASE_URL}\"}\ntarget:\n  " + target + "\n"
	other := newWorld(t, file, env) // its hub has another incarnation
	other.sendSelected(0, 200)
	other.run()

	w := newWorld(t, file, env)
	w.cfg.ConsumerGroup = "$Default"
	w.sendSelected(0, 100)
	w.hub.Append("1", &sluice.Event{Body: []byte(`x`)}) // a dead letter: 50
	w.run()
	w.says(w.audit(), "Checked 101 events: 0 lost, 0 duplicated, 90 written, 0 in flight, 1 dead letter, 10 not selected, 0 not decidable.")

	w.sendSelected(100, 120) // 0: 50 to 59, 1: 51 to 60
	w.set("1", 53)
	w.set("0", 45)
	w.run()
	w.sendSelected(120, 124)
	if r := w.audit("partition 0: events 46 to 49 are duplicated"); r.Total.Skipped != 46+54 {
		t.Errorf("%d events are before where an operator has set the checkpoints, want 100", r.Total.Skipped)
	}
	exec(t, w.database, `UPDATE sluice_checkpoints SET began_sequence = -1, began_how = 'start'`) // as if no operator had
	r := w.audit("partition 0: events 46 to 49 are duplicated", "partition 1: events 51 to 53 are lost")
	w.says(r, "Checked 125 events: 3 lost (partition 1: 51 to 53), 4 duplicated (partition 0: 46 to 49), 105 written, 3 in flight, 1 dead letter, 13 not selected, 0 not decidable.")
	if r.Exact() {
		t.Error("it is exact")
	}
	exec(t, w.database, `UPDATE sluice_dead_letters SET sequence_number = 5`)
	w.audit("partition 0: events 46 to 49 are duplicated", "partition 1: event 5 is duplicated", "partition 1: events 50 to 53 are lost")
}

// TestRepetitionsInHub: what is sent twice is reported, and is no loss.
func TestRepetitionsInHub(t *testing.T) {
	t.Parallel()
	srv, err := emulator.Start([]emulator.Hub{{Name: "next", Partitions: 1}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	w := newWorld(t, `leases: {sql: "${DATABASE_URL}"}
target: {eventhub: {connection: "${NEXT}", hub: next}}
`, "NEXT="+srv.ConnectionString())
	w.cfg.ConsumerGroup = "$Default"
	w.send(0, 20)
	w.run()
	w.set("0", 7)
	w.run()
	if r := w.audit("partition 0: events 8 to 9 are duplicated"); !r.Exact() || r.Undecided() {
		t.Errorf("%+v", r.Total)
	}
}

// TestIntoQueue: messages that were received are not decidable, those that wait are counted, also
// in the queue's dead-letter queue.
func TestIntoQueue(t *testing.T) {
	t.Parallel()
	bus, err := emulator.StartServiceBus([]emulator.ServiceBusQueue{{Name: "orders"}}, []emulator.ServiceBusTopic{{Name: "topic", Subscriptions: []emulator.ServiceBusQueue{{Name: "all"}}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer bus.Close()
	const file = `leases: {sql: "${DATABASE_URL}"}
target: {servicebus: {connection: "${BUS}", queue: orders}}
`
	env := "BUS=" + bus.ConnectionString()
	w := newWorld(t, file, env)
	w.send(0, 30)
	w.run()
	w.says(w.audit(), "Checked 30 events: 0 lost, 0 duplicated, 30 written, 0 in flight, 0 dead letters, 0 not decidable.")

	client, err := azservicebus.NewClientFromConnectionString(bus.ConnectionString(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close(t.Context())
	receiver, err := client.NewReceiverForQueue("orders", nil)
	if err != nil {
		t.Fatal(err)
	}
	for taken := 0; taken < 3; {
		messages, err := receiver.ReceiveMessages(t.Context(), 3-taken, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range messages {
			if taken++; taken == 1 {
				err = receiver.DeadLetterMessage(t.Context(), m, nil)
			} else {
				err = receiver.CompleteMessage(t.Context(), m, nil)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	receiver.Close(t.Context())
	w.set("1", 10)
	w.run()
	exec(t, w.database, `UPDATE sluice_checkpoints SET began_sequence = -1, began_how = 'start'`) // as if no operator had set one
	w.send(30, 32)
	r := w.audit("partition 1: events 11 to 14 are duplicated")
	w.says(r, "Checked 32 events: 0 lost, 4 duplicated (partition 1: 11 to 14), 28 written, 2 in flight, 0 dead letters, 2 not decidable (its message is not in the queue: it was received, has expired, or is lost), 1 message of the target in its own dead-letter queue.")
	if !r.Undecided() {
		t.Error("it is decided")
	}

	topic := newWorld(t, `leases: {sql: "${DATABASE_URL}"}
target: {servicebus: {connection: "${BUS}", topic: topic}}
`, env)
	topic.send(0, 4)
	topic.run()
	topic.says(topic.audit(), "Checked 4 events: 0 lost, 0 duplicated, 0 written, 0 in flight, 0 dead letters, 4 not decidable (a topic of Service Bus shows its messages through a subscription only: name one with --subscription).")
	topic.cfg.Subscription = "all"
	topic.says(topic.audit(), "Checked 4 events: 0 lost, 0 duplicated, 4 written, 0 in flight, 0 dead letters, 0 not decidable.")
}

// TestRetentionOfTarget: an event whose message the target's retention may have removed is not
// decidable.
func TestRetentionOfTarget(t *testing.T) {
	t.Parallel()
	now := time.Now()
	m := &messages{held: now.Add(-time.Hour)}
	topic := &sluice.Topic{}
	for age, want := range map[time.Duration]bool{2 * time.Hour: true, time.Hour: true, 50 * time.Minute: false} {
		got := m.find(topic, []*sluice.Event{{Enqueued: now.Add(-age)}})[0]
		if (got.Unknown != "") != want || got.Copies != 0 {
			t.Errorf("an event of %v ago: %+v", age, got)
		}
	}
}
