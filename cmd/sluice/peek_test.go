package main_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
)

// peeked is a line of peek --json.
type peeked struct {
	Partition   string
	Sequence    int64
	Key         any
	Properties  map[string]any
	Body        json.RawMessage
	Text        string `json:"body_text"`
	Base64      []byte `json:"body_base64"`
	DecodeError string `json:"decode_error"`
}

func (p peeked) String() string { return fmt.Sprintf("%s/%d", p.Partition, p.Sequence) }

// peek runs peek --json, and returns the events and what it says beside them.
func peek(t testing.TB, env []string, args ...string) (list []peeked, said string) {
	t.Helper()
	code, out, errs := invoke(t, t.TempDir(), env, append([]string{"peek", "--json"}, args...)...)
	if code != 0 {
		t.Fatalf("peek %q: exit code %d: %s%s", args, code, out, errs)
	}
	for line := range strings.Lines(out) {
		var p peeked
		decode(t, line, &p)
		list = append(list, p)
	}
	return list, errs
}

// produce sends events to a partition, one after the other.
func produce(t testing.TB, connection, partition string, events ...*azeventhubs.EventData) {
	t.Helper()
	producer, err := azeventhubs.NewProducerClientFromConnectionString(connection, "flights", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Close(context.Background())
	for _, e := range events {
		batch, err := producer.NewEventDataBatch(t.Context(), &azeventhubs.EventDataBatchOptions{PartitionID: &partition})
		if err == nil {
			err = batch.AddEventData(e, nil)
		}
		if err == nil {
			err = producer.SendEventDataBatch(t.Context(), batch, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// numberedEvents are events with the numbers from first to last.
func numberedEvents(first, last int) (list []*azeventhubs.EventData) {
	for n := first; n <= last; n++ {
		list = append(list, &azeventhubs.EventData{Body: fmt.Appendf(nil, `{"n":%d,"even":"%v","delay":5,"distance":480}`, n, n%2 == 0), ContentType: to.Ptr("application/json"), Properties: map[string]any{"n": int64(n)}})
	}
	return list
}

func TestPeek(t *testing.T) {
	t.Parallel()
	_, connection := serve(t, 3)
	env := environment(connection, "sqlite:not-there.db")
	if list, said := peek(t, env, example(t)); len(list) > 0 || !strings.Contains(said, "hub flights: no events in partitions 0, 1, 2\n") {
		t.Errorf("of an empty hub: %v: %s", list, said)
	}
	produce(t, connection, "0", numberedEvents(0, 19)...)
	produce(t, connection, "2", numberedEvents(20, 24)...)
	last := []string{"0/15", "0/16", "0/17", "0/18", "0/19", "2/0", "2/1", "2/2", "2/3", "2/4"}
	for _, c := range []struct {
		args string
		want []string
		says string
	}{
		{"FILE", last, "hub flights: 10 events, the newest of 25 events; without events: partition 1\n"},
		{"--config FILE", last, "newest of 25 events"},
		{"--hub flights", last, "newest of 25 events"},
		{"--from env:OTHER --hub flights", last, "newest of 25 events"},
		{"FILE --limit 2", last[8:], "2 events, the newest of 25 events"},
		{"FILE --partition 0 --limit 2", []string{"0/18", "0/19"}, "2 events, the newest of 20 events\n"},
		{"FILE --partition 2,0 --limit 6", last[4:], "6 events, the newest of 25 events\n"},
		{"FILE --partition 1", nil, "hub flights: no events in partition 1\n"},
		{"FILE --consumer-group sluice-audit --limit 1", last[9:], "1 event, the newest"},
		{"FILE --start earliest --limit 2", []string{"0/0", "0/1"}, "2 events, the first from the start on; the log has 25 events"},
		{"FILE --start sequence_3 --limit 100 --partition 2", []string{"2/3", "2/4"}, "2 events, the first"},
		{"FILE --start sequence_18", []string{"0/18", "0/19"}, "; without events: partition 1; without events from the start on: partition 2\n"},
		{"FILE --start 1h_ago --limit 1", []string{"0/0"}, "1 event, the first"},
		{"FILE --start 2100-01-01T00:00:00Z", nil, "hub flights: no events from the start on: the log has 25 events before it"},
		{"FILE --where body.n:_[3,_21]", []string{"0/3", "2/1"}, "hub flights: 2 events shown, 25 searched, the log has 25 events"},
		{"FILE --where {body.even:_true,partition:_2}", []string{"2/0", "2/2", "2/4"}, "3 events shown"},
		{"FILE --where {properties.n:_{not:_[24]}} --limit 1", []string{"2/3"}, "1 event shown"},
		{"FILE --where body.n:_7 --start sequence_5 --partition 0", []string{"0/7"}, "1 event shown"},
		{"FILE --where body.n:_3 --scan 4", nil, "0 events shown, 8 searched, the log has 25 events; without events: partition 1; older events were not searched: --scan N"},
		{"FILE --where body.x:_3", nil, "0 events shown, 25 searched"},
	} {
		args := strings.Fields(strings.ReplaceAll(c.args, "FILE", example(t)))
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "_", " ")
		}
		list, said := peek(t, append(env, "OTHER="+connection), args...)
		if got := fmt.Sprint(list); got != fmt.Sprint(append([]string{}, c.want...)) || !strings.Contains(said, c.says) {
			t.Errorf("%s: %s, want %v: %s", c.args, got, c.want, said)
		}
	}
}

// TestPeekAfterRetention looks at a hub whose oldest events are gone. Nothing is written.
func TestPeekAfterRetention(t *testing.T) {
	t.Parallel()
	srv, connection := serve(t, 1)
	env := environment(connection, "sqlite:not-there.db")
	produce(t, connection, "0", numberedEvents(0, 19)...)
	if err := srv.Trim("flights", "0", 10); err != nil {
		t.Fatal(err)
	}
	list, said := peek(t, env, example(t), "--start", "sequence 5", "--partition", "0", "--limit", "2")
	if fmt.Sprint(list) != "[0/10 0/11]" || !strings.Contains(said, "partition 0: the log does not have events 5 to 9 any more: event 10 is the next; a pipeline that starts at 5 halts\n") {
		t.Errorf("%v: %s", list, said)
	}
	if list, _ = peek(t, env, example(t), "--partition", "0", "--limit", "100"); len(list) != 10 {
		t.Errorf("%v", list)
	}
	// Variables for other commands.
	if list, _ = peek(t, append(env, "SLUICE_HUB=other", "SLUICE_FROM=env:NOWHERE"), example(t), "--limit", "1"); len(list) != 1 {
		t.Errorf("%v", list)
	}
	if list, _ = peek(t, append(env, "SLUICE_CONFIG=nowhere.yaml", "SLUICE_STAGE=none"), "--hub", "flights", "--limit", "1"); len(list) != 1 {
		t.Errorf("%v", list)
	}
	code, out, errs := invoke(t, "", env, "peek", example(t), "--start", "offset abc")
	if code != 1 || out != "" || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, `"abc" is not an offset`) || strings.Contains(errs, "create a group") {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
	dir := t.TempDir()
	must(t, dir, env, "peek", example(t))
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("it has made %v, %v", entries, err)
	}
}

// TestPeekDisturbsNoConsumer looks at a hub in whose group $Default a consumer reads.
func TestPeekDisturbsNoConsumer(t *testing.T) {
	t.Parallel()
	_, connection := serve(t, 1)
	env := environment(connection, databases["sqlite"](t))
	consumer := start(t, "", env, "run", example(t))
	owner := func() string {
		if list := checkpoints(t, env, example(t)); len(list) == 1 && list[0].Owner != "" {
			return fmt.Sprint(list[0].Owner, list[0].Epoch)
		}
		return ""
	}
	await(t, "an owner", func() bool { return owner() != "" })
	before := owner()
	produce(t, connection, "0", numberedEvents(0, 3)...)
	for range 3 {
		if list, said := peek(t, env, example(t)); len(list) != 4 {
			t.Errorf("%v: %s", list, said)
		}
	}
	code, out, errs := invoke(t, "", env, "peek", example(t), "--consumer-group", "$Default")
	if code != 1 || out != "" || !strings.Contains(errs, "sluice: hub flights, partition 0: cannot be read in the consumer group $Default (a consumer reads in it): create a group to look with") {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
	await(t, "all events", func() bool {
		list := checkpoints(t, env, example(t))
		return len(list) == 1 && list[0].Position != nil && *list[0].Position == 3
	})
	if after := owner(); after != before || strings.Contains(consumer.err.String(), "taken by") {
		t.Errorf("the owner was %s, and is %s\n%s", before, after, consumer.err.String())
	}
	consumer.stop()
}

func TestPeekFollows(t *testing.T) {
	t.Parallel()
	_, connection := serve(t, 2)
	env := environment(connection, "sqlite:not-there.db")
	produce(t, connection, "0", numberedEvents(0, 3)...)
	lines := func(p *process) int { return strings.Count(p.out.String(), "\n") }
	follow := start(t, "", env, "peek", "--json", example(t), "--follow", "--limit", "2")
	matching := start(t, "", env, "peek", "--json", example(t), "--follow", "--start", "latest", "--where", "body.even: true")
	three := start(t, "", env, "peek", "--json", example(t), "--follow", "--start", "earliest", "--limit", "6")
	await(t, "the events that are there", func() bool { return lines(follow) == 2 && lines(three) == 4 })
	await(t, "a reader", func() bool {
		return strings.Contains(matching.err.String(), "waiting for new events of hub flights: ^C ends\n")
	})
	produce(t, connection, "1", numberedEvents(4, 7)...)
	await(t, "new events", func() bool { return lines(follow) == 6 && lines(matching) == 2 })
	if code := three.wait(); code != 0 || lines(three) != 6 {
		t.Errorf("exit code %d: %s%s", code, three.out.String(), three.err.String())
	}
	for _, p := range []*process{follow, matching} {
		p.signal(syscall.SIGINT)
		if code := p.wait(); code != 0 {
			t.Errorf("exit code %d: %s", code, p.err.String())
		}
	}
	if !strings.Contains(follow.err.String(), "6 events of hub flights") || !strings.Contains(matching.out.String(), `"n":6`) {
		t.Errorf("%s%s", follow.err.String(), matching.out.String())
	}
}

func TestPeekBodies(t *testing.T) {
	t.Parallel()
	_, connection := serve(t, 1)
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := w.Write([]byte(`{"kind":"packed"}`)); err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	encoding := map[string]any{"content-encoding": "gzip"}
	produce(t, connection, "0",
		&azeventhubs.EventData{Body: packed.Bytes(), Properties: encoding},
		&azeventhubs.EventData{Body: []byte("text \x1b[2J\u202e")},
		&azeventhubs.EventData{Body: []byte("\x1f\x8bbroken"), Properties: encoding})
	env := environment(connection, "sqlite:not-there.db")
	file := changed(t, "  start: earliest", "  start: earliest\n  format: {compression: auto}")
	list, _ := peek(t, env, file)
	if len(list) != 3 || string(list[0].Body) != `{"kind":"packed"}` || list[1].Text != "text \x1b[2J\u202e" || list[2].DecodeError == "" || string(list[2].Base64) != "\x1f\x8bbroken" {
		t.Errorf("%+v", list)
	}
	if list, _ = peek(t, env, example(t)); len(list) != 3 || !bytes.Equal(list[0].Base64, packed.Bytes()) || list[2].DecodeError != "" {
		t.Errorf("%+v", list)
	}
	list, said := peek(t, env, file, "--where", "body.kind: packed")
	if len(list) != 1 || !strings.Contains(said, "2 events are left out, because it cannot be decided whether they match; the first: partition 0, sequence ") {
		t.Errorf("%+v: %s", list, said)
	}
	out := must(t, "", env, "peek", file)
	for _, part := range []string{"17 bytes of JSON, decoded from ", `    "kind": "packed"`, `  text \u001b[2J\u202e`, "which cannot be decoded:", "1f 8b 62", "It is gzip: source.format: {compression: gzip} reads it."} {
		if !strings.Contains(out, part) {
			t.Errorf("no %q in %s", part, out)
		}
	}
	if strings.ContainsAny(out, "\x1b\u202e") {
		t.Errorf("control characters in %q", out)
	}
	if out = must(t, "", env, "peek", example(t)); strings.Contains(out, "cannot be decoded") || strings.Count(out, "source.format: {compression: gzip}") != 2 {
		t.Errorf("without a format: %s", out)
	}
}

func TestPeekMistakes(t *testing.T) {
	t.Parallel()
	_, connection := serve(t, 1)
	env := environment(connection, "sqlite:not-there.db")
	config := filepath.Join(t.TempDir(), "unread.yaml")
	for args, want := range map[string]string{
		"":                                              "name what to look at: pass PIPELINE.yaml, or --hub NAME",
		"a.yaml b c":                                    "accepts at most 2 arg(s)",
		config + " --hub flights":                       "--hub and a pipeline file exclude each other",
		config + " clean --stage other":                 "--stage other: the argument names another stage, clean",
		"--hub flights --stage clean":                   "--stage goes with a pipeline file",
		"--hub flights --limit 0":                       "--limit 0: must be 1 to 100000",
		"--hub flights --limit few":                     "--limit few: write a whole number",
		"--hub flights --scan 0":                        "--scan 0: must be 1 to",
		"--hub flights --scan 5 --start earliest":       "--scan and --start exclude each other",
		"--hub flights --start yesterday":               `start "yesterday": not understood`,
		"--hub flights --start latest":                  "--start latest: no event is after it yet: add --follow",
		"--hub flights --where body.n=3":                "--where:1:1: a single value where keys and values should be (values are written as in --where 'body.type: order')",
		"--hub flights --where {bdy.n:3}":               "--where:1:2: ",
		"--hub flights --where=":                        "--where: must not be empty",
		"--hub flights --full --json":                   "--full: --json prints whole bodies always",
		"--hub flights --consumer-group=":               "--consumer-group: must not be empty",
		"--hub=":                                        "--hub: must not be empty",
		"--hub a --topic b":                             "--hub and --topic exclude each other",
		"--topic b":                                     "--topic is of Kafka: pass its address in --from",
		"--from env:NOWHERE --hub flights":              "the environment variable NOWHERE is not set: put the connection string there, or pass --from",
		"--from x --namespace a.b --hub flights":        "--from and --namespace exclude each other",
		"--namespace contoso --hub flights":             "write the whole host name",
		"--hub flights --proxy http://p:1":              "--proxy needs --websocket",
		"--from kafka://a":                              "the topic is missing: pass --topic NAME",
		"--from kafka://a --topic t --websocket":        "--websocket: Kafka has no WebSockets",
		"--from kafka://a --topic t --consumer-group g": "--consumer-group g: a topic of Kafka is looked at outside of any consumer group",
		"--from Endpoint=sb://h;SharedAccessKeyName=a;SharedAccessKey=" + secret: "the hub is missing: pass --hub NAME",
	} {
		code, out, errs := invoke(t, "", env, append([]string{"peek"}, strings.Fields(args)...)...)
		if code != 2 || out != "" || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, want) || strings.Contains(errs, secret) {
			t.Errorf("peek %s: exit code %d, printed %q, want %q in %s", args, code, out, want, errs)
		}
	}
	for args, want := range map[string]string{
		config:                                 "unread.yaml: cannot be read: no such file or directory",
		"--hub flihgts":                        "flihgts: not found: check the names",
		"--hub flights --partition 7":          "flights has no partition 7: its partitions are 0",
		"--from kafka://127.0.0.1:1 --topic t": "connection refused",
	} {
		code, out, errs := invoke(t, "", env, append([]string{"peek"}, strings.Fields(args)...)...)
		if code != 1 || out != "" || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, want) {
			t.Errorf("peek %s: exit code %d, printed %q, want %q in %s", args, code, out, want, errs)
		}
	}
}

// TestPeekWithoutARegistry shows events whose schema registry does not answer.
func TestPeekWithoutARegistry(t *testing.T) {
	t.Parallel()
	_, connection := serve(t, 1)
	for range 5 {
		produce(t, connection, "0", &azeventhubs.EventData{Body: []byte("\x00\x00\x00\x00\x07\x02a")})
	}
	env := environment(connection, "sqlite:not-there.db")
	file := changed(t, "  start: earliest", "  start: earliest\n  format: {encoding: avro, registry: {confluent: {url: \"http://127.0.0.1:1\"}}}")
	list, _ := peek(t, env, file)
	if len(list) != 5 || !strings.Contains(list[4].DecodeError, "connection refused") || string(list[4].Base64) != "\x00\x00\x00\x00\x07\x02a" {
		t.Errorf("%+v", list)
	}
	if out := must(t, "", env, "peek", file, "--limit", "1"); !strings.Contains(out, "connection refused") || strings.Contains(out, "It is ") {
		t.Errorf("%s", out)
	}
	code, out, errs := invoke(t, "", env, "peek", file, "--where", "body.a: b")
	if code != 1 || out != "" || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, "partition 0, sequence 0: ") || !strings.Contains(errs, "connection refused") {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
}
