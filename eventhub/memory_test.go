package eventhub

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/sluicetest"
)

const (
	memoryServer    = "SLUICE_MEMORY_SERVER" // the directory of the emulator's events
	memoryEventSize = 1<<20 - 2000
)

// memoryRun is how much TestMemory reads, and how much memory it may use.
type memoryRun struct {
	partitions, events int // events of each partition
	maxBytes           int64
	pace               time.Duration            // of the sink
	every              time.Duration            // between two measurements
	used               func(t *testing.T) int64 // bytes
	bound              int64                    // of used
}

// thisMemoryRun returns the run of 256 MiB and a few seconds that every go test makes, or with
// SLUICE_MEMORY=1 the one of 3 GiB and a minute that make soak makes. Both may use as much for each
// partition.
func thisMemoryRun() memoryRun {
	if os.Getenv("SLUICE_MEMORY") == "" {
		return memoryRun{partitions: 4, events: 64, maxBytes: 8 << 20,
			pace: time.Millisecond, every: 50 * time.Millisecond, used: live, bound: 150 << 20}
	}
	return memoryRun{partitions: 32, events: 96, maxBytes: 64 << 20,
		pace: 15 * time.Millisecond, every: time.Second, used: resident, bound: 1200 << 20} // half of it is garbage
}

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
	run := thisMemoryRun()
	srv, err := emulator.Start([]emulator.Hub{{Name: hubName, Partitions: run.partitions}}, &emulator.Config{Dir: dir})
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
	for i := range run.events * run.partitions {
		batch, err := producer.NewEventDataBatch(ctx, &azeventhubs.EventDataBatchOptions{PartitionID: to.Ptr(fmt.Sprint(i % run.partitions))})
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

// slowSink finishes records after a time, one after the other, once it is released.
type slowSink struct {
	pace     time.Duration
	released chan struct{} // closed by TestMemory

	n    atomic.Int64
	work sync.WaitGroup
	one  sync.Mutex
}

func (s *slowSink) Submit(_ context.Context, _ *driver.Event, done func(driver.WriteResult)) {
	s.work.Go(func() {
		<-s.released
		s.one.Lock()
		time.Sleep(s.pace)
		s.one.Unlock()
		s.n.Add(1)
		done(driver.WriteResult{})
	})
}

// TestMemory prints and bounds the memory of a process that consumes events of 1 MiB: what is alive
// on its heap, or with SLUICE_MEMORY=1 what is resident. The sink finishes nothing until that has
// stopped growing, then less than the log has.
func TestMemory(t *testing.T) {
	need.RealTime(t)
	receivers(t, func(t *testing.T) {
		run := thisMemoryRun()
		before := run.used(t)
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
		s, err := New(connection, hubName, &Config{Receiver: testedReceiver})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close(t.Context())
		sink := &slowSink{pace: run.pace, released: make(chan struct{})}
		c, err := sluice.New(s, &sluicetest.Leases{}, sluice.AtLeastOnce(&sluicetest.Store{}, sluice.EventAsRecord, sink, &sluice.AtLeastOnceConfig{MaxBytes: run.maxBytes}),
			&sluice.Config{AssignEvery: 10 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		ran := make(chan error, 1)
		go func() { ran <- c.Run(t.Context()) }()
		tick := time.NewTicker(run.every)
		defer tick.Stop()
		release := sync.OnceFunc(func() { close(sink.released) })
		most, same := before, 0
		for began, last := time.Now(), int64(0); last < int64(run.events*run.partitions); {
			<-tick.C
			if last == sink.n.Load() && time.Since(began) > patience {
				t.Fatalf("nothing moves: %d events done", last)
			}
			last = sink.n.Load()
			now := run.used(t)
			for range 2 { // what comes between the collection and the measurement leaves garbage
				if now > run.bound {
					now = min(now, run.used(t))
				}
			}
			t.Logf("%5.1f s: %4d MiB done, %d MiB in use", time.Since(began).Seconds(), last, now>>20)
			if now > run.bound {
				t.Fatalf("%d MiB in use, want at most %d MiB", now>>20, run.bound>>20)
			}
			if same++; now > most+1<<20 {
				most, same = now, 0
			}
			if same == 10 && most > before+run.maxBytes {
				release()
			}
		}
		if err := c.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		<-ran
		sink.work.Wait()
	})
}

// live returns the bytes on the heap that are no garbage.
func live(*testing.T) int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// resident returns the most memory in bytes that the process has had resident so far.
func resident(t *testing.T) (most int64) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err) // only Linux has it
	}
	for line := range strings.Lines(string(status)) {
		if n, err := fmt.Sscanf(line, "VmHWM: %d kB", &most); n == 1 && err == nil {
			return most << 10
		}
	}
	t.Fatal("the process's status has no VmHWM")
	return 0
}
