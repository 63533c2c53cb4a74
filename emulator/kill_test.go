package emulator_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"

	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/internal/proof/need"
)

// dirVariable and busVariable make the test binary an emulator over the directory that
// they name: one that can be killed.
const (
	dirVariable = "SLUICE_TEST_EMULATOR_DIR"
	busVariable = "SLUICE_TEST_SERVICEBUS_DIR"
)

func TestMain(m *testing.M) {
	var srv interface{ ConnectionString() string }
	var err error
	if dir := os.Getenv(dirVariable); dir != "" {
		srv, err = emulator.Start(one("h", 2), &emulator.Config{Dir: dir})
	} else if dir := os.Getenv(busVariable); dir != "" {
		srv, err = emulator.StartServiceBus([]emulator.ServiceBusQueue{{Name: "orders", MaxDeliveries: 1000}}, nil, &emulator.ServiceBusConfig{Dir: dir})
	} else {
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(srv.ConnectionString())
	select {}
}

// child starts an emulator in a process of its own.
func child(t *testing.T, variable, dir string) (connection string, kill func()) {
	t.Helper()
	need.RealTime(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), variable+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill = sync.OnceFunc(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	t.Cleanup(kill)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line), kill
}

// An emulator that is killed while events are sent has lost no event that it
// acknowledged, has none twice, and none that wasn't sent.
func TestKill(t *testing.T) {
	dir := t.TempDir()
	var mu sync.Mutex
	sent, accepted := map[string]bool{}, map[string]bool{}
	for round := range 5 {
		connection, kill := child(t, dirVariable, dir)
		p, err := azeventhubs.NewProducerClientFromConnectionString(connection, "h", &azeventhubs.ProducerClientOptions{RetryOptions: noRetry})
		if err != nil {
			t.Fatal(err)
		}
		enough := make(chan struct{})
		count := 0
		var wg sync.WaitGroup
		for s := range 4 {
			wg.Go(func() {
				for i := 0; ; i++ {
					var names []string
					for j := range 3 {
						names = append(names, fmt.Sprintf("%d/%d/%d/%d", round, s, i, j))
					}
					mu.Lock()
					for _, n := range names {
						sent[n] = true
					}
					mu.Unlock()
					ctx := testContext(t)
					batch, err := p.NewEventDataBatch(ctx, &azeventhubs.EventDataBatchOptions{PartitionID: to.Ptr(fmt.Sprint(s % 2))})
					for _, n := range names {
						if err == nil {
							err = batch.AddEventData(&azeventhubs.EventData{Body: []byte(n)}, nil)
						}
					}
					if err == nil {
						err = p.SendEventDataBatch(ctx, batch, nil)
					}
					if err != nil {
						return // killed
					}
					mu.Lock()
					for _, n := range names {
						accepted[n] = true
					}
					if count++; count == 100+37*round {
						close(enough)
					}
					mu.Unlock()
				}
			})
		}
		select {
		case <-enough:
		case <-testContext(t).Done():
			t.Error("the senders don't get on")
		}
		kill()
		wg.Wait()
		p.Close(context.Background())
	}

	srv := start(t, one("h", 2), &emulator.Config{Dir: dir})
	stored := map[string]bool{}
	for _, id := range []string{"0", "1"} {
		props, err := producer(t, srv, "h").GetPartitionProperties(testContext(t), id, nil)
		if err != nil {
			t.Fatal(err)
		}
		pc := partition(t, consumer(t, srv, "h", "$Default", ""), id, &azeventhubs.PartitionClientOptions{StartPosition: earliest})
		for i, e := range receive(t, pc, int(props.LastEnqueuedSequenceNumber)+1) {
			name := string(e.Body)
			if e.SequenceNumber != int64(i) || stored[name] || !sent[name] {
				need.Verdict(t)
				t.Errorf("event %d has sequence number %d and is %q, a repeat: %v, sent: %v", i, e.SequenceNumber, name, stored[name], sent[name])
			}
			stored[name] = true
		}
	}
	for name := range accepted {
		if !stored[name] {
			need.Verdict(t)
			t.Errorf("event %q was accepted and is lost", name)
		}
	}
	for name := range stored { // a batch is there as a whole, or not at all
		for j := range 3 {
			if other := name[:len(name)-1] + fmt.Sprint(j); !stored[other] {
				need.Verdict(t)
				t.Errorf("event %q is there without %q of the same batch", name, other)
			}
		}
	}
	t.Logf("%d sent, %d accepted, %d stored", len(sent), len(accepted), len(stored))
}
