package eventhub

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-go/sluice/driver"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/sluicetest"
)

const (
	memoryPartitions = 32
	memoryEvents     = 96 // of each partition
	memoryEventSize  = 1<<20 - 2000
	memoryServer     = "SLUICE_MEMORY_SERVER" // the directory of the emulator's events
)

// TestMemoryServer is the emulator of TestMemory, in a process of its own.
func TestMemoryServer(t *testing.T) {
	dir := os.Getenv(memoryServer)
	if dir == "" {
		t.Skip("runs as TestMemory's other process")
	}
	srv, err := emulator.Start([]emulator.Hub{{Name: hubName, Partitions: memoryPartitions}}, &emulator.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	producer, err := azeventhubs.NewProducerClientFromConnectionString(srv.ConnectionString(), hubName, nil)
	if err != nil {
		t.Fatal(err)
	}
	body := bytes.Repeat([]byte("x"), memoryEventSize)
	for i := range memoryEvents * memoryPartitions {
		batch, err := producer.NewEventDataBatch(t.Context(), &azeventhubs.EventDataBatchOptions{PartitionID: to.Ptr(fmt.Sprint(i % memoryPartitions))})
		if err == nil {
			err = batch.AddEventData(&azeventhubs.EventData{Body: body}, nil)
		}
		if err == nil {
			err = producer.SendEventDataBatch(t.Context(), batch, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	producer.Close(t.Context())
	fmt.Println("at " + srv.ConnectionString())
	io.Copy(io.Discard, os.Stdin) // until TestMemory closes it
}

// slowSink finishes records after a time, one after the other.
type slowSink struct {
	pace time.Duration
	n    atomic.Int64
	work sync.WaitGroup
	one  sync.Mutex
}

func (s *slowSink) Submit(_ context.Context, _ *driver.Event, done func(sluice.WriteResult)) {
	s.work.Go(func() {
		s.one.Lock()
		time.Sleep(s.pace)
		s.one.Unlock()
		s.n.Add(1)
		done(sluice.WriteResult{})
	})
}

// TestMemory prints the resident memory of a process that consumes 32 partitions of 1 MiB
// events, with MaxBytes of 64 MiB and a sink slower than the log. It takes about a minute
// and 3 GiB of disk; SLUICE_MEMORY=1 runs it.
func TestMemory(t *testing.T) {
	if os.Getenv("SLUICE_MEMORY") == "" {
		t.Skip("SLUICE_MEMORY=1 runs it")
	}
	server := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestMemoryServer$")
	server.Env = append(os.Environ(), memoryServer+"="+t.TempDir())
	out, err1 := server.StdoutPipe()
	in, err2 := server.StdinPipe()
	if err := server.Start(); err != nil || err1 != nil || err2 != nil {
		t.Fatal(err, err1, err2)
	}
	defer server.Wait()
	defer in.Close()
	connection := ""
	for lines := bufio.NewScanner(out); connection == "" && lines.Scan(); {
		connection, _ = strings.CutPrefix(lines.Text(), "at ")
	}
	s, err := New(connection, hubName, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(t.Context())
	sink := &slowSink{pace: 15 * time.Millisecond}
	c, err := sluice.New(s, &sluicetest.Leases{}, sluice.AtLeastOnce(&sluicetest.Store{}, sluice.EventAsRecord, sink, &sluice.AtLeastOnceConfig{MaxBytes: 64 << 20}),
		&sluice.Config{AssignEvery: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ran := make(chan error, 1)
	go func() { ran <- c.Run(t.Context()) }()
	tick := time.NewTicker(3 * time.Second)
	defer tick.Stop()
	for began, last := time.Now(), int64(0); sink.n.Load() < memoryEvents*memoryPartitions; {
		<-tick.C
		if last == sink.n.Load() && time.Since(began) > patience {
			t.Fatalf("nothing moves: %d events done", last)
		}
		last = sink.n.Load()
		t.Logf("%3.0f s: %4d MiB done, %s", time.Since(began).Seconds(), last, resident(t))
	}
	if err := c.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	<-ran
	sink.work.Wait()
}

// resident returns the process's resident memory, now and at most so far.
func resident(t *testing.T) string {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err) // only Linux has it, and this test runs on request alone
	}
	var found []string
	for line := range strings.Lines(string(status)) {
		if strings.HasPrefix(line, "VmRSS") || strings.HasPrefix(line, "VmHWM") {
			found = append(found, strings.Join(strings.Fields(line), " "))
		}
	}
	return strings.Join(found, ", ")
}
