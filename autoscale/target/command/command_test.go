//go:build unix

package command_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/autoscale/target/command"
	"github.com/sluice-go/sluice/internal/proof/need"
)

func shell(script string, args ...string) []string {
	return append([]string{"/bin/sh", "-c", script, "sh"}, args...)
}

func must(t *testing.T, count, scale []string, cfg *command.Config) *command.Target {
	t.Helper()
	need.RealTime(t)
	target, err := command.New(count, scale, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return target
}

// TestAction: the action is in the program's environment.
func TestAction(t *testing.T) {
	file := filepath.Join(t.TempDir(), "instances")
	if err := os.WriteFile(file, []byte("3\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	target := must(t, []string{"cat", file},
		shell(`echo "$SLUICE_RESOURCE $SLUICE_ACTION $SLUICE_FROM $SLUICE_REASON $MORE" >"$1.last" && echo "$SLUICE_INSTANCES" >"$1"`, file), &command.Config{Env: []string{"MORE=x"}})
	queues := autoscale.Queues{Actions: autoscale.NewMemoryQueue(0), Reports: autoscale.NewMemoryQueue(0)}
	store := autoscale.NewMemoryStore()
	body, err := json.Marshal(autoscale.Action{Resource: "orders", Number: 17, From: 3, To: 4, Reason: "much waits"})
	if err == nil {
		err = queues.Actions.Send(t.Context(), body)
	}
	if err != nil {
		t.Fatal(err)
	}
	scaler, err := autoscale.NewScaler(&autoscale.Resource{Name: "orders"}, target, store, queues, nil)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = scaler.Run(t.Context()) }()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(2 * time.Minute); ; <-tick.C {
		o, err := store.Outcome(t.Context(), "orders")
		if err != nil || time.Now().After(end) || o != nil && !o.OK() {
			t.Fatalf("outcome %+v, %v", o, err)
		}
		if o != nil {
			break
		}
	}
	if n, err := target.Instances(t.Context()); err != nil || n != 4 {
		t.Errorf("%d instances, %v", n, err)
	}
	if last, err := os.ReadFile(file + ".last"); err != nil || string(last) != "orders 17 3 much waits x\n" {
		t.Errorf("the program got %q, %v", last, err)
	}
}

func TestFailures(t *testing.T) {
	for _, c := range []struct{ script, want string }{
		{"echo 3 instances", `it printed "3 instances"`},
		{"echo -1", `it printed "-1"`},
		{"true", `it printed ""`},
		{"yes", "not completed within"},
		{"sleep 10 & echo 3", "a program that it started holds its output open: redirect that program's output"},
		{"echo first >&2; printf 'no such\\033 cluster' >&2; exit 7", "exit status 7: no such cluster"},
		{"head -c 100000 /dev/zero | tr '\\0' x >&2; exit 1", "exit status 1: xxx"},
	} {
		var cfg command.Config
		if c.script == "yes" {
			cfg.Timeout = 300 * time.Millisecond
		}
		target := must(t, shell(c.script), []string{"true"}, &cfg)
		if n, err := target.Instances(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 400 {
			t.Errorf("%s: %d, %v", c.script, n, err)
		}
	}
	if _, err := command.New(nil, []string{"true"}, nil); err == nil {
		t.Error("one program is taken for two")
	}
	if _, err := command.New([]string{"true"}, []string{"no-such-program"}, nil); err == nil || !strings.Contains(err.Error(), "no-such-program") {
		t.Errorf("a program that is not there: %v", err)
	}
}

// TestAllOfIt: the processes that a program has started end with it.
func TestAllOfIt(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	target := must(t, []string{"true"}, shell(`sleep 1000 & echo $! >"$1"; wait`, file), nil)
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	go func() { done <- target.Scale(ctx, 2) }()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	pid := 0
	for end := time.Now().Add(time.Minute); pid == 0; <-tick.C {
		text, _ := os.ReadFile(file)
		if pid, _ = strconv.Atoi(strings.TrimSpace(string(text))); time.Now().After(end) {
			t.Fatal("it has not started anything")
		}
	}
	enough := errors.New("enough")
	cancel(enough)
	if err := <-done; !errors.Is(err, enough) {
		t.Errorf("got %v", err)
	}
	for end := time.Now().Add(time.Minute); syscall.Kill(pid, 0) == nil && !dead(pid); <-tick.C {
		if time.Now().After(end) {
			t.Fatal("what it has started goes on")
		}
	}
}

// dead reports whether a process has ended that no parent has waited for.
func dead(pid int) bool {
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	return err == nil && strings.Contains(string(status), ") Z ")
}
