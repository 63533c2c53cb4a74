//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package workers_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-go/sluice/autoscale/target/workers"
	"github.com/sluice-go/sluice/internal/proof/need"
)

// Roles of this binary: a worker, one that ignores interrupts, and a supervisor.
const role, tied = "WORKERS_TEST_ROLE", "WORKERS_TEST_TIED"

const patience = 2 * time.Minute

// quickly is the grace of workers that may ignore interrupts: background processes of
// a shell do, and their children inherit that.
const quickly = 5 * time.Second

func TestMain(m *testing.M) {
	switch os.Getenv(role) {
	case "":
		os.Exit(m.Run())
	case "worker":
		work(os.Args[1])
	case "stubborn":
		signal.Ignore(os.Interrupt)
		journal(os.Args[1], "begin")
		<-time.After(time.Hour)
	case "supervisor":
		supervise(os.Args[1], os.Args[2])
	}
}

// work is a worker that records when it begins and when it ends gracefully.
func work(path string) {
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt)
	journal(path, "begin")
	<-interrupted
	journal(path, "end")
}

func journal(path, what string) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err == nil {
		_, err = fmt.Fprintf(f, "%s %s %d\n", what, os.Getenv("SLUICE_WORKER"), os.Getpid())
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	f.Close()
}

// supervise scales up and down until it is killed.
func supervise(dir, path string) {
	pool, err := workers.New(dir, []string{os.Args[0], path}, &workers.Config{Env: []string{role + "=worker"}, StopWithParent: os.Getenv(tied) != ""})
	for n := 0; err == nil; n++ {
		fmt.Println("changed")
		err = pool.Scale(context.Background(), 1+n%4)
	}
	fmt.Println(err)
	os.Exit(1)
}

// world is a pool's directory and the journal of its workers.
type world struct {
	*testing.T
	dir, journal string
}

func newWorld(t *testing.T) *world {
	dir := t.TempDir()
	return &world{t, filepath.Join(dir, "pool"), filepath.Join(dir, "journal")}
}

func (w *world) start(kind string, cfg workers.Config) *workers.Target {
	w.Helper()
	need.RealTime(w)
	cfg.Env = append(cfg.Env, role+"="+kind)
	pool, err := workers.New(w.dir, []string{os.Args[0], w.journal}, &cfg)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { pool.Close() })
	return pool
}

func (w *world) close(pool *workers.Target) {
	w.Helper()
	if err := pool.Close(); err != nil {
		w.Error(err)
	}
}

func (w *world) scale(pool *workers.Target, to int) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	if err := pool.Scale(ctx, to); err != nil {
		w.Fatal(err)
	}
	if n, err := pool.Instances(ctx); err != nil || n != to {
		w.Fatalf("scaled to %d, there are %d, %v", to, n, err)
	}
}

func (w *world) eventually(what string, ok func() bool) {
	w.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); !ok(); <-tick.C {
		if time.Now().After(end) {
			w.Fatalf("not within %v: %s; the journal: %s", patience, what, w.entries(""))
		}
	}
}

// entries returns the journal's lines that start with a word.
func (w *world) entries(what string) (list []string) {
	text, _ := os.ReadFile(w.journal)
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, what) {
			list = append(list, strings.TrimSpace(line))
		}
	}
	return list
}

// alive returns the workers in the journal whose process exists, by number.
func (w *world) alive() map[string][]int {
	living := map[string][]int{}
	for _, line := range w.entries("begin") {
		part := strings.Fields(line)
		id, err := strconv.Atoi(part[2])
		if err != nil {
			w.Fatal(err)
		}
		if runs(id) {
			living[part[1]] = append(living[part[1]], id)
		}
	}
	return living
}

// runs reports whether there is such a process, not counting zombies.
func runs(id int) bool {
	if syscall.Kill(id, 0) != nil {
		return false
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", id))
	return err != nil || !strings.Contains(string(status), ") Z ")
}

func TestUpAndDown(t *testing.T) {
	w := newWorld(t)
	pool := w.start("worker", workers.Config{})
	w.scale(pool, 3)
	w.eventually("three workers begin", func() bool { return len(w.entries("begin")) == 3 })
	if list := pool.Workers(); len(list) != 3 || list[2].Number != 2 || list[2].PID <= 0 {
		t.Errorf("workers are %+v", list)
	}
	w.scale(pool, 3) // nothing to do
	w.scale(pool, 1)
	if ends := w.entries("end"); len(ends) != 2 {
		t.Errorf("scaled to 1, and these have ended gracefully: %v", ends)
	}
	if living := w.alive(); len(living) != 1 || len(living["0"]) != 1 {
		t.Errorf("scaled to 1, alive are %v", living)
	}
	w.scale(pool, 0)
	if begun, living := w.entries("begin"), w.alive(); len(begun) != 3 || len(living) != 0 {
		t.Errorf("at the end %v have begun, %v live", begun, living)
	}
}

func TestTheDeadAreReplaced(t *testing.T) {
	w := newWorld(t)
	pool := w.start("worker", workers.Config{RestartMin: time.Millisecond})
	for death := range 3 {
		w.eventually("a worker begins", func() bool { return len(w.entries("begin")) == death+1 && len(pool.Workers()) == 1 })
		if list := pool.Workers(); list[0].Restarts != death {
			t.Errorf("after %d deaths: %+v", death, list)
		}
		if err := syscall.Kill(pool.Workers()[0].PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	w.eventually("it begins once more", func() bool { return len(w.entries("begin")) == 4 })
}

// TestOneDoesNotStart: then the pool is as before, and Scale fails.
func TestOneDoesNotStart(t *testing.T) {
	w := newWorld(t)
	pool := w.start("worker", workers.Config{})
	obstacle := filepath.Join(w.dir, "worker-2.log")
	if err := os.Mkdir(obstacle, 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := pool.Scale(ctx, 4); err == nil || !strings.Contains(err.Error(), "start worker 2") {
		t.Errorf("scaled over an obstacle: %v", err)
	}
	if n, err := pool.Instances(ctx); n != 1 || err != nil {
		t.Errorf("there are %d, %v; want 1", n, err)
	}
	if list := pool.Workers(); len(list) != 1 {
		t.Errorf("workers are %+v", list)
	}
	if noted, err := os.ReadFile(filepath.Join(w.dir, "instances")); err != nil || string(noted) != "1\n" {
		t.Errorf("noted is %q, %v", noted, err)
	}
	if err := os.Remove(obstacle); err != nil {
		t.Fatal(err)
	}
	w.scale(pool, 4)
}

func TestStubbornWorkersAreKilled(t *testing.T) {
	w := newWorld(t)
	pool := w.start("stubborn", workers.Config{Grace: 50 * time.Millisecond})
	w.scale(pool, 2)
	w.eventually("two workers begin", func() bool { return len(w.entries("begin")) == 2 })
	w.scale(pool, 0)
	if living := w.alive(); len(living) != 0 {
		t.Errorf("scaled to 0, alive are %v", living)
	}
}

// TestStopInAHurry: the grace is an hour, but the caller's context ends.
func TestStopInAHurry(t *testing.T) {
	w := newWorld(t)
	pool := w.start("stubborn", workers.Config{Grace: time.Hour})
	w.eventually("a worker begins", func() bool { return len(w.entries("begin")) == 1 })
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := pool.Scale(over, 0); err == nil {
		t.Error("a worker that does not end has ended")
	}
	other, err := workers.New(w.dir, []string{"true"}, nil)
	if err == nil {
		t.Fatal("two pools over one directory", other)
	}
	done := make(chan error, 1)
	go func() { done <- pool.Stop(over) }()
	select {
	case err := <-done:
		if err == nil {
			t.Error("Stop does not say that workers were killed")
		}
	case <-time.After(patience):
		t.Fatal("Stop waits for the grace")
	}
	if living := w.alive(); len(living) != 0 {
		t.Errorf("alive are %v", living)
	}
}

// TestSupervisorIsKilled: at any time, the next supervisor finds the workers that run,
// each once.
func TestSupervisorIsKilled(t *testing.T) {
	need.RealTime(t)
	w := newWorld(t)
	for round := range 8 {
		cmd := exec.Command(os.Args[0], w.dir, w.journal)
		cmd.Env = append(os.Environ(), role+"=supervisor")
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		// Somewhere within its next change, another place each time.
		if _, err := fmt.Fscanln(out, new(string)); err != nil {
			t.Fatal(err)
		}
		until := time.NewTimer(time.Duration(round) * 7 * time.Millisecond)
		<-until.C
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
	}
	before := w.alive()
	pool, err := workers.New(w.dir, []string{os.Args[0], w.journal}, &workers.Config{Env: []string{role + "=worker"}})
	if err != nil {
		t.Fatal(err)
	}
	n, err := pool.Instances(t.Context())
	if err != nil || n < 1 || n > 4 {
		t.Errorf("%d instances are wanted, %v", n, err)
	}
	w.scale(pool, 4)
	for _, taken := range pool.Workers() {
		if old := before[strconv.Itoa(taken.Number)]; len(old) == 1 && taken.Number < n && old[0] != taken.PID {
			t.Errorf("worker %d was process %d, and is %d now", taken.Number, old[0], taken.PID)
		}
	}
	w.eventually("each number has one worker", func() bool {
		living := w.alive()
		for _, ids := range living {
			if len(ids) != 1 {
				t.Fatalf("a worker runs twice: %v", living)
			}
		}
		return len(living) == 4
	})
	w.close(pool)
	if living := w.alive(); len(living) != 0 {
		t.Errorf("closed, and alive are %v", living)
	}
}

// TestFresh: the workers of an earlier pool are stopped.
func TestFresh(t *testing.T) {
	need.RealTime(t)
	w := newWorld(t)
	cmd := exec.Command(os.Args[0], w.dir, w.journal)
	cmd.Env = append(os.Environ(), role+"=supervisor")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.eventually("a worker begins", func() bool { return len(w.entries("begin")) > 0 })
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	before := w.alive()
	pool := w.start("worker", workers.Config{DiscardPrevious: true, Instances: 2, Grace: quickly})
	w.eventually("two others run", func() bool {
		living := w.alive()
		for number, ids := range living {
			for _, id := range before[number] {
				if len(ids) != 1 || ids[0] == id {
					return false
				}
			}
		}
		return len(living) == 2
	})
	if n, err := pool.Instances(t.Context()); err != nil || n != 2 {
		t.Errorf("%d instances, %v", n, err)
	}
}

// TestTied: on Linux the workers end with their supervisor.
func TestTied(t *testing.T) {
	need.RealTime(t)
	if runtime.GOOS != "linux" {
		t.Log("only Linux ties processes to each other")
		return
	}
	w := newWorld(t)
	cmd := exec.Command(os.Args[0], w.dir, w.journal)
	cmd.Env = append(os.Environ(), role+"=supervisor", tied+"=1")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.eventually("a worker begins", func() bool { return len(w.entries("begin")) > 0 })
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	w.eventually("all have ended", func() bool { return len(w.alive()) == 0 })
}

func TestMistakes(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		name    string
		command []string
		cfg     *workers.Config
		text    string
	}{
		{"no command", nil, nil, "the command is empty"},
		{"no program", []string{"no-such-program"}, nil, `"no-such-program"`},
		{"too many", []string{"true"}, &workers.Config{Instances: 1001}, "1001 instances: must be 0 to 1000"},
	} {
		if _, err := workers.New(dir, c.command, c.cfg); err == nil || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "instances"), []byte("many"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := workers.New(dir, []string{"true"}, nil); err == nil || !strings.Contains(err.Error(), "instances does not contain a number") {
		t.Errorf("a spoiled number: %v", err)
	}
}

func TestNumbersInArguments(t *testing.T) {
	need.RealTime(t)
	dir := t.TempDir()
	// It ends at once, and is restarted repeatedly.
	pool, err := workers.New(filepath.Join(dir, "pool"), []string{"/bin/sh", "-c", `echo "$1 $SLUICE_WORKER" >"$1"; exec sleep 1000`, "sh", filepath.Join(dir, "of-{worker}")},
		&workers.Config{Instances: 2, Grace: quickly})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{T: t}
	defer w.close(pool)
	for n := range 2 {
		path := filepath.Join(dir, fmt.Sprintf("of-%d", n))
		w.eventually("worker writes "+path, func() bool {
			text, _ := os.ReadFile(path)
			return string(text) == fmt.Sprintf("%s %d\n", path, n)
		})
	}
}
