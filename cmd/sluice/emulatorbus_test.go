package main_test

import (
	"context"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// The Service Bus namespace joins the hub emulator: a second line has what clients need.
func TestEmulatorServiceBus(t *testing.T) {
	t.Parallel()
	p := start(t, "", nil, "emulator", "serve", "--listen", "127.0.0.1:0", "--hub", "docs=1", "--key", "all=c2VjcmV0", "--servicebus", "127.0.0.1:0",
		"--servicebus-queue", "orders", "--servicebus-topic", "news/one", "--servicebus-topic", "news/two")
	await(t, "the emulator", func() bool { return strings.Count(p.out.String(), "\n") == 2 })
	connection, ready := strings.CutPrefix(strings.Split(p.out.String(), "\n")[1], "ready ")
	if !ready || !strings.Contains(connection, "SharedAccessKeyName=all;") {
		t.Fatalf("the emulator printed %q", p.out.String())
	}
	client, err := azservicebus.NewClientFromConnectionString(connection, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(context.Background()) })
	for _, entity := range []string{"orders", "news"} {
		s, err := client.NewSender(entity, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.SendMessage(t.Context(), &azservicebus.Message{Body: []byte(entity)}, nil); err != nil {
			t.Fatal(err)
		}
	}
	r, err := client.NewReceiverForSubscription("news", "two", nil)
	if err != nil {
		t.Fatal(err)
	}
	if ms, err := r.ReceiveMessages(t.Context(), 1, nil); err != nil || len(ms) != 1 || string(ms[0].Body) != "news" {
		t.Fatalf("received %d messages: %v", len(ms), err)
	}
}

// What is wrong with the namespace's flags is told in one line.
func TestEmulatorServiceBusMistakes(t *testing.T) {
	t.Parallel()
	serve := []string{"emulator", "serve", "--listen", "127.0.0.1:0", "--hub", "docs=1"}
	for want, args := range map[string][]string{
		"state --servicebus ADDRESS, such": {"--servicebus-queue", "orders"},
		"such as --servicebus 127.0.0.1":   {"--servicebus-topic", "news/one"},
		"topic news: write TOPIC/SUBSC":    {"--servicebus", "127.0.0.1:0", "--servicebus-topic", "news"},
		"topic news/: write TOPIC/SUBSC":   {"--servicebus", "127.0.0.1:0", "--servicebus-topic", "news/"},
		"topic /one: write TOPIC/SUBSC":    {"--servicebus", "127.0.0.1:0", "--servicebus-topic", "/one"},
	} {
		code, out, err := invoke(t, "", nil, append(serve[:len(serve):len(serve)], args...)...)
		if code != 2 || !strings.Contains(err, want) || strings.Count(err, "\n") != 1 || out != "" {
			t.Errorf("%q: exit code %d: %s%s", args, code, out, err)
		}
	}
}
