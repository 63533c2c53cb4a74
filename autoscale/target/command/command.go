// Package command scales by running two programs that the user provides: one prints
// the number of instances, the other changes it.
package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/autoscale/internal/subprocess"
)

// Config holds the options. The zero value, like nil, takes every default.
type Config struct {
	// Timeout is how long a program may run. After that it is killed, on Unix with
	// all processes that it has started. Default: 1 min.
	Timeout time.Duration
	// Env holds variables, "NAME=value", that the programs get in addition to those
	// of this process.
	Env []string
}

// Target scales by a pair of programs. It is safe for concurrent use.
type Target struct {
	count, scale []string
	cfg          Config
}

var _ autoscale.Target = (*Target)(nil)

// New returns a pair of programs, with their arguments, as a target. count must print
// the number of instances that there are, or will be once everything requested so
// far has been done, and nothing else. scale must change the number as its
// environment says:
//
//	SLUICE_INSTANCES   the number of instances to scale to
//	SLUICE_FROM        the number when that was decided
//	SLUICE_RESOURCE    the name of the resource
//	SLUICE_ACTION      the action's number, the same in each attempt
//	SLUICE_REASON      the reason of the decision
//
// A program fails if its exit status is not 0. The error then has the last line of
// its standard error. New fails if a program cannot be found.
func New(count, scale []string, cfg *Config) (*Target, error) {
	t := &Target{count: slices.Clone(count), scale: slices.Clone(scale)}
	if cfg != nil {
		t.cfg = *cfg
	}
	t.cfg.Timeout = cmp.Or(t.cfg.Timeout, time.Minute)
	for _, program := range [][]string{t.count, t.scale} {
		if len(program) == 0 {
			return nil, errors.New("command: give two programs: one that prints the number of instances, one that changes it")
		}
		if _, err := exec.LookPath(program[0]); err != nil {
			return nil, fmt.Errorf("command: find program: %w", err)
		}
	}
	return t, nil
}

// Instances implements [autoscale.Target] by running the program that prints the
// number.
func (t *Target) Instances(ctx context.Context) (int, error) {
	out, err := t.run(ctx, t.count)
	if err != nil {
		return 0, fmt.Errorf("command %s: %w", t.count[0], err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(out))
	if err != nil || n < 0 {
		return 0, fmt.Errorf("command %s: it printed %.40q: it must print the number of instances, and nothing else", t.count[0], strings.TrimSpace(out))
	}
	return n, nil
}

// Scale implements [autoscale.Target] by running the program that changes the number.
func (t *Target) Scale(ctx context.Context, to int) error {
	env := []string{"SLUICE_INSTANCES=" + strconv.Itoa(to)}
	if a, ok := autoscale.ActionFrom(ctx); ok {
		env = append(env, "SLUICE_FROM="+strconv.Itoa(a.From), "SLUICE_RESOURCE="+a.Resource,
			"SLUICE_ACTION="+strconv.FormatInt(a.Number, 10), "SLUICE_REASON="+a.Reason)
	}
	if _, err := t.run(ctx, t.scale, env...); err != nil {
		return fmt.Errorf("command %s: %w", t.scale[0], err)
	}
	return nil
}

func (t *Target) run(ctx context.Context, program []string, env ...string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, t.cfg.Timeout, fmt.Errorf("not completed within %v", t.cfg.Timeout))
	defer cancel()
	out, err := subprocess.Run(ctx, slices.Concat(os.Environ(), t.cfg.Env, env), program)
	return string(out), err
}
