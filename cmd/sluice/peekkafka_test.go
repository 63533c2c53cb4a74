package main_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-go/sluice/emulator"
)

func TestPeekAtKafka(t *testing.T) {
	t.Parallel()
	k := newTopic(t, 2, fakeKafka(t))
	env := k.environment("sqlite:not-there.db")
	if list, said := peek(t, env, kafkaExample(t)); len(list) > 0 || !strings.Contains(said, "no events in partitions 0, 1") {
		t.Errorf("of an empty topic: %v: %s", list, said)
	}
	k.fill(2) // with aborted transactions and control records
	list, said := peek(t, env, kafkaExample(t), "--start", "earliest", "--limit", "1000")
	if len(list) != len(k.good)+len(k.bad) {
		t.Errorf("%d events, want %d: %s", len(list), len(k.good)+len(k.bad), said)
	}
	address := []string{"--from", "kafka://" + k.brokers, "--topic", k.name}
	list, said = peek(t, nil, append(address, "--limit", "4")...)
	if len(list) != 4 || !strings.Contains(string(list[3].Body), `"distance":3`) || !strings.Contains(said, "topic "+k.name+": 4 events, the newest of 196 offsets\n") {
		t.Errorf("%+v: %s", list, said)
	}
	if list, _ = peek(t, nil, append(address, "--where", "{body.delay: 17}")...); len(list) != 1 {
		t.Errorf("%+v", list)
	}

	odd := &kgo.Record{Topic: k.name, Partition: 1, Key: []byte("\xff\x00"), Headers: []kgo.RecordHeader{{Key: "b", Value: []byte("1")}, {Key: "a"}, {Key: "b", Value: []byte("\x1b[2J")}}}
	if err := k.client.ProduceSync(t.Context(), odd).FirstErr(); err != nil {
		t.Fatal(err)
	}
	out := must(t, "", env, "peek", kafkaExample(t), "--partition", "1", "--limit", "1")
	for _, part := range []string{"\nkey          ff 00\n", "\nproperty     a = null\nproperty     b = 1\nproperty     b = \\u001b[2J\nbody         null\n"} {
		if !strings.Contains(out, part) {
			t.Errorf("no %q in %s", part, out)
		}
	}
	if list, _ = peek(t, env, kafkaExample(t), "--where", "properties.b: {not: [x]}", "--limit", "1"); len(list) != 1 || fmt.Sprint(list[0].Key) != "map[base64:/wA=]" {
		t.Errorf("%+v", list)
	}

	open := k.newClient(kgo.TransactionalID("open"))
	if err := open.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := open.ProduceSync(t.Context(), &kgo.Record{Topic: k.name, Partition: 0, Value: []byte("held")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if list, said = peek(t, env, kafkaExample(t), "--partition", "0", "--limit", "1"); len(list) != 1 || list[0].Text == "held" || !strings.Contains(said, "partition 0: event 98 cannot be read yet: an open transaction") {
		t.Errorf("%+v: %s", list, said)
	}
	code, _, errs := invoke(t, "", env, "peek", kafkaExample(t), "--start", "offset abc")
	if code != 1 || !strings.Contains(errs, `"abc" is not an offset: give the number of a record`) {
		t.Errorf("exit code %d: %s", code, errs)
	}
}

// TestPeekInUnknownGroups looks at a hub that has few consumer groups.
func TestPeekInUnknownGroups(t *testing.T) {
	t.Parallel()
	srv, err := emulator.Start([]emulator.Hub{{Name: "flights", Partitions: 1, ConsumerGroups: []string{"writer"}}}, &emulator.Config{AsAzure: &emulator.AsAzure{EventHubs: emulator.EventHubsAsAzure{KnownGroups: true}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { srv.Close() })
	env := environment(srv.ConnectionString(), databases["sqlite"](t))
	produce(t, srv.ConnectionString(), "0", numberedEvents(0, 0)...)
	if list, said := peek(t, env, example(t)); len(list) != 1 {
		t.Errorf("%v: %s", list, said)
	}
	start(t, "", env, "run", example(t))
	await(t, "the consumer", func() bool {
		list := checkpoints(t, env, example(t))
		return len(list) == 1 && list[0].Position != nil && *list[0].Position == 0
	})
	code, out, errs := invoke(t, "", env, "peek", example(t))
	if code != 1 || out != "" || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, "in the consumer group $Default (a consumer reads in it), nor in sluice-audit (") || !strings.Contains(errs, "pass --consumer-group NAME") {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
	if code, _, errs := invoke(t, "", env, "peek", example(t), "--consumer-group", "nowhere"); code != 1 || !strings.Contains(errs, "nowhere") || !strings.Contains(errs, "not found: check the names of the hub and the consumer group") {
		t.Errorf("exit code %d: %s", code, errs)
	}
	other := changed(t, "consumer_group: $Default", "consumer_group: writer")
	if list, said := peek(t, env, other); len(list) != 1 {
		t.Errorf("%v: %s", list, said)
	}
}
