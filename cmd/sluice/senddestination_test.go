package main_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/sluice-go/sluice/emulator"
)

// serveBus is a namespace with the queue orders and the topic news.
func serveBus(t testing.TB, keys ...emulator.Key) (srv *emulator.ServiceBus, connection string) {
	t.Helper()
	srv, err := emulator.StartServiceBus([]emulator.ServiceBusQueue{{Name: "orders"}},
		[]emulator.ServiceBusTopic{{Name: "news", Subscriptions: []emulator.ServiceBusQueue{{Name: "all"}}}}, &emulator.ServiceBusConfig{Keys: keys})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { srv.Close() })
	return srv, srv.ConnectionString()
}

// takeFrom takes so many messages out of a queue, or the topic's subscription.
func takeFrom(t testing.TB, connection, entity string, n int) (list []*azservicebus.ReceivedMessage) {
	t.Helper()
	client, err := azservicebus.NewClientFromConnectionString(connection, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close(context.Background())
	options := &azservicebus.ReceiverOptions{ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete}
	r, err := client.NewReceiverForQueue(entity, options)
	if entity == "news" {
		r, err = client.NewReceiverForSubscription(entity, "all", options)
	}
	if err != nil {
		t.Fatal(err)
	}
	for len(list) < n {
		more, err := r.ReceiveMessages(t.Context(), n-len(list), nil)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, more...)
	}
	return list
}

func TestSendToQueueAndTopic(t *testing.T) {
	t.Parallel()
	const n = 3000
	lines := make([]string, n)
	for i := range lines {
		lines[i] = fmt.Sprintf(`{"customer":"c%d","n":%d}`, i%17, i)
	}
	for name, c := range map[string]struct {
		entity string
		args   []string
		key    func(m *azservicebus.ReceivedMessage) *string
	}{
		"sessions": {"orders", []string{"--queue", "orders", "--session-field", "customer"}, func(m *azservicebus.ReceivedMessage) *string { return m.SessionID }},
		"keys":     {"news", []string{"--topic", "news", "--key-field", "customer"}, func(m *azservicebus.ReceivedMessage) *string { return m.PartitionKey }},
	} {
		t.Run(name, func(t *testing.T) {
			_, connection := serveBus(t)
			out := must(t, "", []string{"SERVICEBUS_CONNECTION_STRING=" + connection}, append(append([]string{"send"}, c.args...), writeLines(t, lines))...)
			if !strings.HasPrefix(out, fmt.Sprintf("%d records acknowledged in ", n)) || strings.Count(out, "\n") != 1 {
				t.Errorf("it says %s", out)
			}
			next := map[string]int{}
			for _, m := range takeFrom(t, connection, c.entity, n) {
				var got struct {
					Customer string
					N        int
				}
				decode(t, string(m.Body), &got)
				key := c.key(m)
				if key == nil || *key != got.Customer || *m.ContentType != "application/json" {
					t.Fatalf("message %s has the key %v", m.Body, key)
				}
				if before, known := next[*key]; known && got.N != before {
					t.Fatalf("message %d of %s where %d was due", got.N, *key, before)
				}
				next[*key] = got.N + 17
			}
			if len(next) != 17 {
				t.Errorf("%d keys", len(next))
			}
		})
	}
}

func TestSendGeneratedToQueue(t *testing.T) {
	t.Parallel()
	srv, connection := serveBus(t)
	out := must(t, "", nil, "send", "--to", connection, "--queue", "orders", "--generate", "2000", "--batch", "10", "--replicas", "3")
	if !strings.HasPrefix(out, "2000 records acknowledged in ") {
		t.Errorf("it says %s", out)
	}
	if a := srv.IncomingStats("orders"); a.Messages < 200 {
		t.Errorf("arrived: %+v", a)
	}
	var ids []string
	for _, m := range takeFrom(t, connection, "orders", 2000) {
		ids = append(ids, m.MessageID)
	}
	slices.Sort(ids)
	if ids = slices.Compact(ids); len(ids) != 2000 || ids[0] != "doc-0000000000" || ids[1999] != "doc-0000001999" {
		t.Errorf("%d ids from %s to %s", len(ids), ids[0], ids[len(ids)-1])
	}
}

// TestSendLeavesOutWhatTheQueueRefuses names the records, and sends the others.
func TestSendLeavesOutWhatTheQueueRefuses(t *testing.T) {
	t.Parallel()
	srv, connection := serveBus(t)
	large := fmt.Sprintf(`{"a":%q}`, strings.Repeat("x", 256<<10))
	code, out, errs := invoke(t, "", nil, "send", "--to", connection, "--queue", "orders", writeLines(t, []string{`{"a":1}`, large, `{"a":2}`}))
	if code != 1 || !strings.HasPrefix(out, "2 records acknowledged") || !strings.Contains(errs, ".ndjson: line 2: too large (262152 bytes)") ||
		!strings.Contains(errs, "sluice: 1 record was too large for the queue: all others were sent") {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
	if counts, err := srv.Counts("orders"); err != nil || counts.Active != 2 {
		t.Errorf("%+v, %v", counts, err)
	}
}

func TestSendToAQueueThatWantsSessions(t *testing.T) {
	t.Parallel()
	srv, err := emulator.StartServiceBus([]emulator.ServiceBusQueue{{Name: "orders", Sessions: true}}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	code, out, errs := invoke(t, "", nil, "send", "--to", srv.ConnectionString(), "--queue", "orders", writeLines(t, []string{`{"a":1}`}))
	if code != 1 || !strings.HasPrefix(out, "0 records acknowledged") || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, "sluice: queue orders: it accepts only messages with a session: pass --session-field") {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
}

// TestSendTellsItsProgress in lines of the log, where there is no terminal.
func TestSendTellsItsProgress(t *testing.T) {
	t.Parallel()
	_, connection := serveBus(t)
	p := start(t, "", nil, "send", "--to", connection, "--queue", "orders", "--generate", "1000000", "--rate", "1000", "--log-format", "json")
	await(t, "a line of progress", func() bool { return strings.Contains(p.err.String(), "\n") })
	p.kill()
	p.wait()
	line, _, _ := strings.Cut(p.err.String(), "\n")
	var got struct {
		Msg                                                    string
		Acknowledged, Batches, Bytes, Fill_percent, Per_second int64
	}
	decode(t, line, &got)
	if got.Msg != "progress" || got.Acknowledged == 0 || got.Batches == 0 || got.Bytes < 1000*got.Acknowledged || got.Per_second == 0 || got.Fill_percent > 100 {
		t.Errorf("it says %s", line)
	}
}

func TestSendToWrongPlaces(t *testing.T) {
	t.Parallel()
	_, right := serveBus(t, emulator.Key{Name: "app", Secret: secret}, emulator.Key{Name: "reader", Secret: secret, Rights: emulator.Listen})
	file := writeLines(t, []string{"{}"})
	for name, c := range map[string]struct {
		destination, queue string
		want               []string
	}{
		"unknown queue": {right, "odrers", []string{"queue odrers: not found"}},
		"wrong key":     {strings.Replace(right, secret, "d3Jvbmc=", 1), "orders", []string{"queue orders: not authorised"}},
		"no right":      {strings.Replace(right, "=app;", "=reader;", 1), "orders", []string{"queue orders: not authorised", "right to send"}},
		"nobody there":  {"Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=app;SharedAccessKey=" + secret + ";UseDevelopmentEmulator=true", "orders", []string{"queue orders", "connection refused"}},
		"mangled":       {"Endpoint=sb://x;SharedAccessKey=" + secret, "orders", []string{"connection string: not understood"}},
	} {
		code, out, errs := invoke(t, "", nil, "send", "--to", c.destination, "--queue", c.queue, file)
		if code != 1 || out != "" || strings.Count(errs, "\n") != 1 || strings.Contains(errs, secret) {
			t.Errorf("%s: exit code %d: %s%s", name, code, out, errs)
		}
		for _, part := range c.want {
			if !strings.Contains(errs, part) {
				t.Errorf("%s: no %q in %s", name, part, errs)
			}
		}
	}
}

func TestSendToMisused(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"--hub h --queue q":         "--hub and --queue exclude each other",
		"--queue q --topic t":       "--queue and --topic exclude each other",
		"--queue=":                  "--queue: must not be empty",
		"--queue q":                 "SERVICEBUS_CONNECTION_STRING is not set",
		"--hub h":                   "EVENTHUB_CONNECTION_STRING is not set",
		"--hub h --session-field s": "--session-field needs --queue or --topic",
		"--queue q --session-field s --key-field k":      "--key-field and --session-field exclude each other",
		"--topic t --to env:NOWHERE":                     "NOWHERE is not set",
		"--queue q --generate 5 --session-field s":       "--session-field: generated documents have a key, but no session",
		"--queue q --rate -1 --to Endpoint=sb://nowhere": "--rate -1: must be positive",
	} {
		code, out, errs := invoke(t, "", nil, append([]string{"send"}, strings.Fields(args)...)...)
		if code != 2 || out != "" || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, want) {
			t.Errorf("%s: exit code %d: %s%s", args, code, out, errs)
		}
	}
}
