package servicebus

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/sluice-go/sluice/internal/proof/need"
)

// childVariable makes the test binary run a broker over the directory that it names, in
// a process that can be killed.
const childVariable = "BUS_TEST_CHILD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childVariable); dir != "" {
		fmt.Fprintln(os.Stderr, useUntilKilled(dir, os.Args[1]))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// useUntilKilled sends messages and completes most of them, in a journal that is
// compacted all the time. It prints what is confirmed: "sent NAME", "done NAME"; and
// "doing NAME" before it completes one.
func useUntilKilled(dir, round string) error {
	b, err := Open(dir, &Options{slack: 8 << 10})
	if err != nil {
		return err
	}
	q, ok := b.Queue("q")
	if !ok {
		if q, err = b.CreateQueue("q", nil); err != nil {
			return err
		}
	}
	for i := 0; ; i++ {
		name := fmt.Sprintf("%s-%d", round, i)
		if err := q.Send([]Message{{Payload: []byte(name), Session: string(make([]byte, 400)), InSession: true}}); err != nil {
			return err
		}
		fmt.Println("sent", name)
		got, err := q.Messages().Receive(1, 1<<20)
		if err != nil {
			return err
		}
		for _, l := range got {
			if i%8 == 0 {
				continue // it stays locked
			}
			fmt.Println("doing", string(l.Payload))
			if err := q.Messages().Complete(l.Token); err != nil {
				return err
			}
			fmt.Println("done", string(l.Payload))
		}
	}
}

// TestKill kills a process over and over, mostly in the middle of a compaction: all
// messages that were sent are there, and none that was completed.
func TestKill(t *testing.T) {
	need.RealTime(t)
	dir := t.TempDir()
	last := make(map[string]string) // the last line about each message
	rng := need.Rand(t)
	for round := range 8 {
		cmd := exec.Command(os.Args[0], strconv.Itoa(round))
		cmd.Env = append(os.Environ(), childVariable+"="+dir)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		must(t, err)
		must(t, cmd.Start())
		lines := bufio.NewScanner(out)
		for left := 100 + rng.IntN(200); lines.Scan(); {
			var what, name string
			if _, err := fmt.Sscan(lines.Text(), &what, &name); err != nil {
				continue // a line that the kill cut off
			}
			last[name] = what
			if left--; left == 0 {
				must(t, cmd.Process.Kill())
			}
		}
		if err := cmd.Wait(); err == nil || cmd.ProcessState.Exited() {
			t.Fatalf("round %d: the process ended by itself: %v", round, err)
		}
	}
	b := open(t, dir, 0)
	q, ok := b.Queue("q")
	if !ok {
		t.Fatal("the queue is lost")
	}
	ms, err := q.Messages().Peek(0, 1<<30, 1<<40, nil)
	must(t, err)
	need.Verdict(t)
	stored := make(map[string]bool)
	for _, m := range ms {
		if name := string(m.Payload); stored[name] {
			t.Errorf("message %s is there twice", name)
		} else {
			stored[name] = true
		}
	}
	for name, what := range last {
		if what == "sent" && !stored[name] || what == "done" && stored[name] {
			t.Errorf("message %s, %s: stored: %t", name, what, stored[name])
		}
	}
	if b.journal.written > 1<<20 {
		t.Errorf("the journal has %d bytes for %d messages", b.journal.written, len(ms))
	}
	must(t, b.Close())
	t.Logf("%d messages, %d left", len(last), len(stored))
}
