package disklog

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-go/sluice/internal/proof/need"
)

// childVariable is set in a child process, to its task and arguments.
const childVariable = "DISKLOG_TEST_CHILD"

var tasks = map[string]func(args []string) error{
	"append": func(args []string) error { return appendUntilKilled(args[0], args[1]) },
}

func TestMain(m *testing.M) {
	task := strings.Fields(os.Getenv(childVariable))
	if len(task) == 0 {
		os.Exit(m.Run())
	}
	if err := tasks[task[0]](task[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func child(task ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"="+strings.Join(task, " "))
	cmd.Stderr = os.Stderr
	return cmd
}

const killAppenders = 4

// killBatch is the n-th batch of an appender in a round, the same in parent and
// child.
func killBatch(round string, appender, n int) []Message {
	rng := rand.New(rand.NewPCG(uint64(appender), uint64(n)))
	batch := make([]Message, 1+rng.IntN(8))
	for i := range batch {
		batch[i].Key = fmt.Sprintf("%s %d %d %d %d", round, appender, n, i, len(batch))
		batch[i].Payload = bytes.Repeat([]byte(batch[i].Key), rng.IntN(60))
	}
	return batch
}

// appendUntilKilled runs several appenders, which print what was acknowledged: "batch ROUND
// APPENDER N FIRST" and "trim BEFORE".
func appendUntilKilled(dir, round string) error {
	l, err := Open(dir, &Config{SegmentBytes: 40_000})
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	errs := make([]error, killAppenders)
	for a := range killAppenders {
		wg.Go(func() {
			for n := 0; errs[a] == nil; n++ {
				var first int64
				if first, errs[a] = l.Append(context.Background(), killBatch(round, a, n)); errs[a] != nil {
					return
				}
				fmt.Printf("batch %s %d %d %d\n", round, a, n, first)
				if a == 0 && n%20 == 19 {
					if errs[a] = l.Trim(first - 100); errs[a] != nil {
						return
					}
					fmt.Printf("trim %d\n", first-100)
				}
			}
		})
	}
	wg.Wait()
	return fmt.Errorf("append: %v", errs)
}

// TestKill kills a process that appends, many times, and checks the log: everything
// acknowledged is in its place; there is nothing that wasn't appended, no partial or
// duplicate batch, and the batches of each appender are in order.
func TestKill(t *testing.T) {
	need.RealTime(t)
	dir := t.TempDir()
	rng := need.Rand(t)
	acknowledged := map[string]int64{} // first sequence number by "ROUND APPENDER N"
	trimmed := int64(0)
	rounds := 50
	for round := range rounds {
		cmd := child("append", dir, strconv.Itoa(round))
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		killAfter := rng.IntN(250) // lines
		lines := bufio.NewReader(out)
		for n := 0; ; n++ {
			if n == killAfter {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
			line, err := lines.ReadString('\n')
			if err == io.EOF {
				break // a line in part is not an acknowledgement
			}
			if err != nil {
				t.Fatal(err)
			}
			words := strings.Fields(line)
			value, err := strconv.ParseInt(words[len(words)-1], 10, 64)
			if err != nil {
				t.Fatalf("child printed %q", line)
			}
			if words[0] == "trim" {
				trimmed = max(trimmed, value)
				continue
			}
			acknowledged[strings.Join(words[1:4], " ")] = value
		}
		if err := cmd.Wait(); err == nil || cmd.ProcessState.Exited() {
			t.Fatalf("round %d: the child ended by itself: %v", round, err)
		}
		// Now and then the next child has to recover by itself.
		if round%2 == 1 || round == rounds-1 {
			checkKilled(t, dir, acknowledged, trimmed)
		}
	}
	t.Logf("%d batches acknowledged in %d rounds", len(acknowledged), rounds)
}

func checkKilled(t *testing.T, dir string, acknowledged map[string]int64, trimmed int64) {
	t.Helper()
	l := mustOpen(t, dir, nil)
	defer mustClose(t, l)
	info := l.Info()
	events, err := l.Read(0, math.MaxInt, math.MaxInt, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if t.Failed() {
			need.Verdict(t)
		}
	}()
	if info.First < trimmed || int64(len(events)) != info.Last+1-info.First {
		t.Fatalf("%d events from %d to %d, trimmed up to %d", len(events), info.First, info.Last, trimmed)
	}
	last := map[string]int{} // batch by "ROUND APPENDER"
	at := map[string]int64{}
	for i := 0; i < len(events); {
		var round string
		var appender, n, index, size int
		if _, err := fmt.Sscan(events[i].Key, &round, &appender, &n, &index, &size); err != nil || i > 0 && index != 0 {
			t.Fatalf("event %d, %q, is not the beginning of a batch: %v", events[i].Sequence, events[i].Key, err)
		}
		batch := killBatch(round, appender, n)[index:] // Trim may have cut the first
		if len(batch) > len(events)-i {
			t.Fatalf("batch at %d is there in part", events[i].Sequence)
		}
		for j, m := range batch {
			e := events[i+j]
			if e.Key != m.Key || !bytes.Equal(e.Payload, m.Payload) || e.Sequence != info.First+int64(i+j) {
				t.Fatalf("event %d of key %q, want %d of key %q and its payload", e.Sequence, e.Key, info.First+int64(i+j), m.Key)
			}
		}
		by := fmt.Sprint(round, " ", appender)
		if before, ok := last[by]; ok && n != before+1 {
			t.Fatalf("batch %d of appender %s follows %d", n, by, before)
		}
		last[by] = n
		at[fmt.Sprint(by, " ", n)] = events[i].Sequence - int64(index)
		i += len(batch)
	}
	for id, first := range acknowledged {
		if got, ok := at[id]; first >= info.First && (!ok || got != first) {
			t.Fatalf("batch %s, acknowledged as %d, is at %d, %v", id, first, got, ok)
		}
	}
}
