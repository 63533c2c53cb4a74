//go:build unix

package testserver_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/internal/proof/testserver"
)

// shell is a server that is a shell's script.
var shell = testserver.Program{Name: "Shell", Ready: "is ready", End: syscall.SIGKILL, Users: []string{"nobody"}}

const serve = `echo "the server is ready"; exec sleep 600`

func TestMain(m *testing.M) {
	testserver.Orphan(func() (string, error) {
		p, err := testserver.NewProcess(shell)
		if err != nil {
			return "", err
		}
		return p.Dir(), p.Start("/bin/sh", "-c", serve)
	})
	os.Exit(m.Run())
}

func TestProcess(t *testing.T) {
	need.RealTime(t)
	p, err := testserver.NewProcess(shell)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // stopped and started again
		if err := p.Start("/bin/sh", "-c", serve); err != nil {
			t.Fatal(err)
		}
		if log := p.Log(); log != "the server is ready" {
			t.Errorf("log %q", log)
		}
		if _, err := os.Stat(p.File("pid")); err != nil {
			t.Error(err)
		}
		if err := p.Stop(); err != nil {
			t.Fatal(err)
		}
		if err := p.Signal(syscall.Signal(0)); err != os.ErrProcessDone {
			t.Errorf("the program runs: %v", err)
		}
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(p.Dir()); !os.IsNotExist(err) {
		t.Errorf("the directory is there: %v", err)
	}
}

// A child of the program that has its log open does not hold up the end.
func TestChildThatOutlivesProgram(t *testing.T) {
	need.RealTime(t)
	p := testserver.New(t, func() (*testserver.Process, error) { return testserver.NewProcess(shell) })
	if err := p.Start("/bin/sh", "-c", "sleep 600 & echo $! >child; "+serve); err != nil {
		t.Fatal(err)
	}
	child, err := os.ReadFile(p.File("child"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(child)))
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Kill(pid, syscall.SIGKILL)
	stopped := make(chan error, 1)
	go func() { stopped <- p.Stop() }()
	select {
	case err := <-stopped:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Error("Stop waits for the child")
	}
}

// The program's log says why it did not start. It is started again if its port is taken.
func TestProcessThatDoesNotStart(t *testing.T) {
	need.RealTime(t)
	p := testserver.New(t, func() (*testserver.Process, error) { return testserver.NewProcess(shell) })
	if err := p.Start("/bin/sh", "-c", "echo no disk >&2"); err == nil || err.Error() != "Shell did not start: no disk" {
		t.Errorf("%v", err)
	}
	starts := 0
	err := p.Launch(func() error {
		if starts++; starts < 3 {
			return p.Start("/bin/sh", "-c", "echo bind: Address already in use")
		}
		return p.Start("/bin/sh", "-c", serve)
	})
	if err != nil || starts != 3 {
		t.Errorf("started %d times: %v", starts, err)
	}
}

// The error of a program that is never ready says how long it ran on a CPU: next to nothing if it
// waits, or if the machine is too busy.
func TestProcessThatIsNeverReady(t *testing.T) {
	need.RealTime(t)
	never := shell
	never.Start = 5 * time.Second // within which a busy machine starts a shell
	p := testserver.New(t, func() (*testserver.Process, error) { return testserver.NewProcess(never) })
	err := p.Start("/bin/sh", "-c", "echo starting; exec sleep 600")
	if err == nil {
		t.Fatal("it is ready")
	}
	text, log := "", ""
	if _, err := fmt.Sscanf(err.Error(), "Shell did not start within 5s, in which it ran on a CPU for %s %s", &text, &log); err != nil {
		t.Fatal(err)
	}
	if ran, perr := time.ParseDuration(strings.TrimSuffix(text, ":")); perr != nil || ran <= 0 || ran > 400*time.Millisecond || log != "starting" {
		t.Errorf("%v", err)
	}
}

// A program does not outlive tests that are killed.
func TestKilled(t *testing.T) {
	var dir string
	testserver.Killed(t, func(said string) {
		dir = said
		if pid, err := os.ReadFile(dir + "/pid"); err != nil || strings.TrimSpace(string(pid)) == "" {
			t.Fatalf("the server said %q: %v", said, err)
		}
	})
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(time.Minute); ; <-tick.C {
		if _, err := os.Stat(dir); os.IsNotExist(err) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s is still there", dir)
		}
	}
}
