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
	memoryBound      = 1200 << 20             // of the process; half of it is garbage
	memoryServer     = "SLUICE_MEMORY_SERVER" // the directory of the emulator's events
)

// TestMain runs the tests, or the emulator of TestMemory in a process of its own.
func TestMain(m *testing.M) {
	dir := os.Getenv(memoryServer)
	if dir == "" {
		os.Exit(m.Run())
	}
	if err := serveMemory(context.Background(), dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// serveMemory serves a hub with all events of TestMemory until standard input ends.
func serveMemory(ctx context.Context, dir string) error {
	srv, err := emulator.Start([]emulator.Hub{{Name: hubName, Partitions: memoryPartitions}}, &emulator.Config{Dir: dir})
	if err != nil {
		return err
	}
	defer srv.Close()
	producer, err := azeventhubs.NewProducerClientFromConnectionString(srv.ConnectionString(), hubName, nil)
	if err != nil {
		return err
	}
	defer producer.Close(ctx)
	body := bytes.Repeat([]byte("x"), memoryEventSize)
	for i := range memoryEvents * memoryPartitions {
		batch, err := producer.NewEventDataBatch(ctx, &azeventhubs.EventDataBatchOptions{PartitionID: to.Ptr(fmt.Sprint(i % memoryPartitions))})
		if err == nil {
			err = batch.AddEventData(&azeventhubs.EventData{Body: body}, nil)
		}
		if err == nil {
			err = producer.SendEventDataBatch(ctx, batch, nil)
		}
		if err != nil {
			return err
		}
	}
	fmt.Println("at " + srv.ConnectionString())
	_, err = io.Copy(io.Discard, os.Stdin) // until TestMemory closes it
	return err
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

// TestMemory prints and bounds the resident memory of a process that consumes 32 partitions of
// 1 MiB events, with MaxBytes of 64 MiB and a sink slower than the log. It takes about a minute
// and 3 GiB of disk, so make soak runs it, by SLUICE_MEMORY=1.
func TestMemory(t *testing.T) {
	if os.Getenv("SLUICE_MEMORY") == "" {
		t.Skip("takes a minute and 3 GiB of disk: make soak runs it, and so does SLUICE_MEMORY=1")
	}
	server := exec.CommandContext(t.Context(), os.Args[0])
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
		now, most := resident(t)
		t.Logf("%3.0f s: %4d MiB done, resident %d MiB, at most %d MiB", time.Since(began).Seconds(), last, now>>20, most>>20)
		if most > memoryBound {
			t.Fatalf("resident memory reached %d MiB, want at most %d MiB", most>>20, memoryBound>>20)
		}
	}
	if err := c.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	<-ran
	sink.work.Wait()
}

// resident returns the process's resident memory in bytes, now and at most so far.
func resident(t *testing.T) (now, most int64) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err) // only Linux has it, and this test runs on request alone
	}
	for line := range strings.Lines(string(status)) {
		var kilobytes int64
		if _, err := fmt.Sscanf(line, "VmRSS: %d kB", &kilobytes); err == nil {
			now = kilobytes << 10
		}
		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &kilobytes); err == nil {
			most = kilobytes << 10
		}
	}
	return now, most
}
