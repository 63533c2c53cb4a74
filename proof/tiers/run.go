//go:build unix

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sluice-go/sluice/internal/proof/need"
)

// run is a run of a tier.
type run struct {
	tier    string
	stages  []stage
	whole   bool // all stages of the tier
	began   time.Time
	seed    uint64 // of random choices; 0: fixed
	tree    string // see tree
	dir     string // bin/TIER: the logs
	memory  string // the tests' files, or empty
	earlier *record
	flakes  *history

	mu        sync.Mutex // guards what follows, and the terminal
	out       io.Writer
	outcomes  map[string]*outcome
	installed map[string]chan struct{} // closed once a thing is there, or can't be
	missing   map[string]string        // what could not be installed, and why
	results   map[string]map[string]testRecord
}

// outcome is what became of a stage.
type outcome struct {
	took    time.Duration
	red     []string // a line each
	flaky   []flake
	skipped string   // why the stage did not run, or ran without a part of what it needs
	skips   []string // tests that skipped, and why
	tests   int      // that passed
	left    int      // that skipped
}

func newRun(tier string, stages []stage, whole bool) (*run, error) {
	r := &run{tier: tier, stages: stages, whole: whole, began: time.Now(), tree: tree(), dir: filepath.Join("bin", tier), out: os.Stdout,
		outcomes: map[string]*outcome{}, installed: map[string]chan struct{}{}, missing: map[string]string{}, results: map[string]map[string]testRecord{}}
	if _, err := os.Stat("go.work"); err != nil {
		return nil, fmt.Errorf("run it in the root of the repository: %w", err)
	}
	if err := os.MkdirAll(r.dir, 0o755); err != nil {
		return nil, err
	}
	var err error
	if r.flakes, err = readHistory(); err != nil {
		return nil, err
	}
	for _, name := range r.needs() {
		r.installed[name] = make(chan struct{})
	}
	switch tier {
	case "proof":
		r.earlier = readRecord("test")
	case "soak":
		if r.seed, err = soakSeed(); err != nil {
			return nil, err
		}
		r.say("repeat with SLUICE_SEED=%d", r.seed)
	}
	return r, nil
}

// soakSeed is drawn from the clock, unless SLUICE_SEED has one.
func soakSeed() (uint64, error) {
	text := os.Getenv("SLUICE_SEED")
	if text == "" {
		return uint64(time.Now().UnixMilli()), nil
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("SLUICE_SEED: %w", err)
	}
	return seed, nil
}

// all runs the stages and prints the summary.
func (r *run) all(ctx context.Context) (red bool, err error) {
	r.memory = inMemory()
	defer os.RemoveAll(r.memory)
	preferSession(os.Getpid(), foreground)
	defer preferSession(os.Getpid(), 0)

	turns := make(chan struct{}, 3)
	for range cap(turns) - atOnce(r.tier) {
		turns <- struct{}{}
	}
	var lanes sync.WaitGroup
	lanes.Go(func() { r.install(ctx) })
	lanes.Go(func() {
		r.lane(ctx, computing, make(chan struct{}, 1))
		if r.tier == "proof" {
			<-turns // the CPUs are free for a third
		}
	})
	lanes.Go(func() { r.lane(ctx, waiting, turns) })
	lanes.Wait()
	if ctx.Err() != nil {
		return true, fmt.Errorf("interrupted after %v", time.Since(r.began).Round(time.Second))
	}
	r.summary()
	for _, o := range r.outcomes {
		red = red || len(o.red) > 0
	}
	return red, r.save()
}

// atOnce is how many waiting stages run at once, while there are computing ones. Two of make test
// would compile the same packages, each for itself; those of the soak measure.
func atOnce(tier string) int {
	if tier == "proof" {
		return 2
	}
	return 1
}

// lane runs the stages of a lane in their order, each in a turn.
func (r *run) lane(ctx context.Context, l lane, turns chan struct{}) {
	var running sync.WaitGroup
	for _, s := range r.stages {
		if s.lane != l || ctx.Err() != nil {
			continue
		}
		turns <- struct{}{}
		if s.alone {
			running.Wait()
		}
		running.Go(func() {
			defer func() { <-turns }()
			r.one(ctx, s)
		})
		if s.alone {
			running.Wait()
		}
	}
	running.Wait()
}

// one runs a stage.
func (r *run) one(ctx context.Context, s stage) {
	for _, name := range s.needs {
		select {
		case <-r.installed[name]:
		case <-ctx.Done():
			return
		}
	}
	o := &outcome{}
	r.mu.Lock()
	r.outcomes[s.name] = o
	var without []string
	for _, name := range s.needs {
		if why, missing := r.missing[name]; missing {
			without = append(without, name+" ("+why+")")
		}
	}
	r.mu.Unlock()
	if len(without) > 0 {
		o.skipped = "without " + strings.Join(without, ", ")
		if len(without) == len(s.needs) {
			r.say("%-16s skipped %s", s.name, o.skipped)
			return
		}
	}

	began := time.Now()
	r.say("%-16s started, %v on two quiet cores", s.name, s.budget)
	limit := 4 * s.budget
	if s.lane == computing {
		limit = max(limit, time.Hour) // it gets the CPUs that the others leave
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("stage ended after %v", limit))
	defer cancel()
	log, err := os.Create(filepath.Join(r.dir, s.name+".log"))
	if err != nil {
		o.red = append(o.red, err.Error())
		return
	}
	defer log.Close()
	for _, command := range s.commands {
		r.execute(ctx, s, o, log, command)
	}
	o.took = time.Since(began)
	r.say("%-16s %s, %.0f s%s", s.name, o.colour(), o.took.Seconds(), o.counts())
}

// execute runs a command of a stage.
func (r *run) execute(ctx context.Context, s stage, o *outcome, log io.Writer, command []string) {
	if len(command) > 1 && command[0] == "go" && command[1] == "test" {
		r.goTest(ctx, s, o, log, command)
		return
	}
	p := r.process(s, command)
	p.Stdout, p.Stderr = log, log
	err := runGroup(ctx, p)
	said := tail(filepath.Join(r.dir, s.name+".log"))
	if err != nil {
		o.red = append(o.red, fmt.Sprintf("%s: %v", strings.Join(command, " "), err))
		r.say("%-16s RED %s: %v\n%s", s.name, strings.Join(command, " "), err, said)
	} else if last := lastLines(said, 1); strings.Contains(last, ": not run: ") {
		o.skipped = last
	}
}

// environment is that of a stage's commands. Everything is compiled as a release is, without cgo
// and without the paths of this machine, so that tests, the programs that they build and the
// release share what they compile.
func (r *run) environment(s stage) []string {
	flags := "-trimpath"
	if set := os.Getenv("GOFLAGS"); set != "" && !strings.Contains(set, flags) {
		flags = set + " " + flags
	}
	env := append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS="+flags, need.Variable+"="+r.demanded(s))
	if r.seed != 0 {
		env = append(env, fmt.Sprintf("SLUICE_SEED=%d", r.seed))
	}
	if r.memory != "" {
		env = append(env, "GOTMPDIR="+os.TempDir(), "TMPDIR="+r.memory)
	}
	for _, variable := range s.env {
		name, _, _ := strings.Cut(variable, "=")
		if _, set := os.LookupEnv(name); !set || r.tier != "soak" || name == "GOFLAGS" {
			env = append(env, os.Expand(variable, r.variable))
		}
	}
	return env
}

// variable is the value of what a stage's environment refers to.
func (r *run) variable(name string) string {
	switch name {
	case "SEED":
		return strconv.FormatUint(r.seed, 10)
	case "UPGRADE":
		return beforeLastMigration()
	}
	return os.Getenv(name)
}

// beforeLastMigration is the last tag, else the revision before the newest of the tables'
// migrations.
func beforeLastMigration() string {
	if tag, err := exec.Command("git", "describe", "--tags", "--abbrev=0").Output(); err == nil {
		return strings.TrimSpace(string(tag))
	}
	revision, _ := exec.Command("git", "log", "-1", "--format=%H^", "--diff-filter=A", "--", "internal/postgres/migrations/*.sql", "sqlstore/migrations/*.sql").Output()
	return strings.TrimSpace(string(revision))
}

// demanded is the value of need.Variable: nothing in make test, one stage's needs where not all
// stages run, else all that some stage needs and that is here.
func (r *run) demanded(s stage) string {
	if r.tier == "test" {
		return "none"
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.whole {
		here := slices.DeleteFunc(slices.Clone(s.needs), func(name string) bool { return r.missing[name] != "" })
		return strings.Join(append(here, "realtime"), ",")
	}
	value := "all"
	for _, name := range need.Names() {
		if _, missing := r.missing[name]; missing || !slices.Contains(r.needs(), name) {
			value += ",-" + name
		}
	}
	return value
}

// needs are the things that the stages need.
func (r *run) needs() []string {
	var names []string
	for _, s := range r.stages {
		names = append(names, s.needs...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// say prints a line with the time since the beginning.
func (r *run) say(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	since := time.Since(r.began).Round(time.Second)
	fmt.Fprintf(r.out, "%3d:%02d "+format+"\n", append([]any{int(since.Minutes()), int(since.Seconds()) % 60}, args...)...)
}

// inMemory makes a directory in memory for the tests' files and the data of their servers, where
// there is enough of it: with a database for each test, a file system on a disk costs a third of
// the CPU time.
func inMemory() string {
	if runtime.GOOS != "linux" || available("/dev/shm") < 8<<30 || availableMemory() < 16<<30 {
		return ""
	}
	dir, err := os.MkdirTemp("/dev/shm", "sluice-test-")
	if err != nil {
		return ""
	}
	err = os.Chmod(dir, 0o777|os.ModeSticky) // servers run as users of their own
	if err == nil {
		err = runs(dir)
	}
	if err != nil {
		os.RemoveAll(dir)
		return ""
	}
	return dir
}

// runs returns an error if programs cannot run in a directory.
func runs(dir string) error {
	program := filepath.Join(dir, "true")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"), 0o755); err != nil {
		return err
	}
	return exec.Command(program).Run()
}
