package main_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-go/sluice/internal/proof/built"
	"github.com/sluice-go/sluice/internal/proof/need"
)

// program is the program under test.
var program = built.Main("github.com/sluice-go/sluice/cmd/sluice")

func TestMain(m *testing.M) { os.Exit(built.Run(m)) }

// patience is how long a test waits for what must happen. It is there to end
// what hangs, not to measure.
const patience = 4 * time.Minute

// buffer is an output that can be read while it is written.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// process is a run of the binary.
type process struct {
	t        testing.TB
	args     []string
	cmd      *exec.Cmd
	out, err buffer
	done     chan struct{}
}

// start starts the binary with variables like "NAME=value", in a directory or
// the test's own. It is killed at the end of the test at the latest.
func start(t testing.TB, dir string, env []string, args ...string) *process {
	t.Helper()
	return startCommand(t, dir, env, nil, exec.Command(program.Path(t), args...))
}

func startCommand(t testing.TB, dir string, env []string, stdin *os.File, cmd *exec.Cmd) *process {
	t.Helper()
	need.RealTime(t)
	p := &process{t: t, args: cmd.Args[1:], cmd: cmd, done: make(chan struct{})}
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &p.out, &p.err
	if stdin != nil {
		cmd.Stdin = stdin
	}
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}, env...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("sluice %s: exit code %d\n%s%s", strings.Join(p.args, " "), p.cmd.ProcessState.ExitCode(), p.out.String(), p.err.String())
		}
	})
	return p
}

// kill is kill -9.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("signal %v: %v", s, err)
	}
}

// wait returns the exit code.
func (p *process) wait() int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(patience):
		p.t.Fatalf("sluice %s has not ended\n%s%s", strings.Join(p.args, " "), p.out.String(), p.err.String())
	}
	return p.cmd.ProcessState.ExitCode()
}

// stop is SIGTERM, after which the process must end well.
func (p *process) stop() {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != 0 {
		p.t.Errorf("sluice %s: exit code %d after SIGTERM\n%s", strings.Join(p.args, " "), code, p.err.String())
	}
}

// invoke runs the binary to its end.
func invoke(t testing.TB, dir string, env []string, args ...string) (code int, out, err string) {
	t.Helper()
	p := start(t, dir, env, args...)
	code = p.wait()
	return code, p.out.String(), p.err.String()
}

// must is invoke that has to succeed.
func must(t testing.TB, dir string, env []string, args ...string) (out string) {
	t.Helper()
	code, out, err := invoke(t, dir, env, args...)
	if code != 0 {
		t.Fatalf("sluice %s: exit code %d\n%s%s", strings.Join(args, " "), code, out, err)
	}
	return out
}

// await waits for a condition.
func await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), patience, errors.New("in vain"))
	defer cancel()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for !ok() {
		select {
		case <-look.C:
		case <-ctx.Done():
			t.Fatalf("waited for %s: %v", what, context.Cause(ctx))
		}
	}
}
