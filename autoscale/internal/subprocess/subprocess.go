// Package subprocess runs programs of others for a bounded time, and bounds their output.
package subprocess

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"github.com/sluice-go/sluice/internal/humanize"
)

// MaxOutput is the largest size of a program's standard output in bytes.
const MaxOutput = 1 << 20

// outputDelay is the wait for a killed program to close its output.
const outputDelay = time.Second

// Error is a program that could not be started, or whose exit status was not 0.
type Error struct {
	Err      error
	LastLine string // of its standard error, may be empty
}

func (e *Error) Error() string {
	if e.LastLine == "" {
		return e.Err.Error()
	}
	return e.Err.Error() + ": " + e.LastLine
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// Run runs a program with arguments, and returns its standard output. Its standard input is
// empty. If ctx ends, Run kills the program, on Unix with all processes that it has started,
// and returns ctx's cause. A program that fails gives an [*Error]. One that succeeds is an
// error too if a program that it has started holds its output open.
func Run(ctx context.Context, env, program []string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, program[0], program[1:]...)
	cmd.Env = env
	var out head
	var report tail
	cmd.Stdout, cmd.Stderr = &out, &report
	cmd.WaitDelay = outputDelay
	killWholeGroup(cmd)
	err := cmd.Run()
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return nil, cause
	}
	if errors.Is(err, exec.ErrWaitDelay) {
		return nil, errors.New("it has ended, but a program that it started holds its output open: redirect that program's output")
	}
	if err != nil {
		return nil, &Error{err, report.lastLine()}
	}
	if len(out.kept) > MaxOutput {
		return nil, fmt.Errorf("it printed more than %d bytes", MaxOutput)
	}
	return out.kept, nil
}

// head keeps the first bytes that are written to it, one more than [MaxOutput].
type head struct{ kept []byte }

// Write implements [io.Writer].
func (h *head) Write(p []byte) (int, error) {
	h.kept = append(h.kept, p[:min(len(p), MaxOutput+1-len(h.kept))]...)
	return len(p), nil
}

// tail keeps the last bytes that are written to it.
type tail struct{ kept []byte }

const maxTail = 4096

// Write implements [io.Writer].
func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p...)
	if extra := len(t.kept) - maxTail; extra > 0 {
		t.kept = append(t.kept[:0], t.kept[extra:]...)
	}
	return len(p), nil
}

// maxErrorLine is the length in characters of a program's message in an error.
const maxErrorLine = 200

func (t *tail) lastLine() string {
	text := bytes.TrimSpace(t.kept)
	text = text[bytes.LastIndexByte(text, '\n')+1:]
	return humanize.Shorten(string(text), maxErrorLine)
}
