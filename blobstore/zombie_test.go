package blobstore_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-go/sluice/blobstore"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/need"
)

// zombie names what this binary is to act as in a process of its own: the one
// that is paused, or its successor.
const zombie = "BLOBSTORE_ZOMBIE"

// verdict is what the paused process tells of what it did once it went on.
type verdict struct {
	Advance, Renew           string // that were under way when it was paused
	Advanced, Renewed        []string
	Again, RenewAgain, Claim string // begun after it went on
	Leave, Release           string
}

// outcome of a call, for another process to judge.
func outcome(err error) string {
	switch {
	case err == nil:
		return "done"
	case errors.Is(err, driver.ErrFenced):
		return "fenced"
	}
	return err.Error()
}

// actZombie plays a part and exits.
func actZombie() {
	p := place{os.Getenv("BLOBSTORE_CONNECTION"), os.Getenv("BLOBSTORE_CONTAINER")}
	part := map[string]func(context.Context, place) error{"paused": actPaused, "successor": actSuccessor}[os.Getenv(zombie)]
	if err := part(context.Background(), p); err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// actPaused owns the partition, and has a checkpoint and a renewal on their way
// when it says so. It sends them when it is allowed to continue.
func actPaused(ctx context.Context, p place) error {
	s, err := blobstore.Open(ctx, p.name, &blobstore.Config{ConnectionString: p.connection})
	if err != nil {
		return err
	}
	l, err := s.Leases().Acquire(ctx, group, "0", "paused", blobstore.MinLease, 0)
	if err != nil {
		return err
	}
	if _, err := s.Claim(ctx, l, "incarnation 1"); err != nil {
		return err
	}
	if err := s.Advance(ctx, l, "incarnation 1", positionAt(5), nil); err != nil {
		return err
	}
	var v verdict
	over := make(chan struct{})
	late := func(kind string, call func(*blobstore.Store) error, result *string, seen *[]string) (*gate, error) {
		g := newGate(kind)
		w := &wire{onRequest: g.hold}
		s, err := blobstore.Open(ctx, p.name, &blobstore.Config{ConnectionString: p.connection, Client: w.options(0)})
		if err != nil {
			return nil, err
		}
		go func() {
			*result = outcome(call(s))
			*seen = w.log()
			over <- struct{}{}
		}()
		<-g.held
		return g, nil
	}
	advance, err := late("metadata", func(s *blobstore.Store) error { return s.Advance(ctx, l, "incarnation 1", positionAt(50), nil) }, &v.Advance, &v.Advanced)
	if err != nil {
		return err
	}
	renew, err := late("acquire", func(s *blobstore.Store) error { return s.Leases().Renew(ctx, l, blobstore.MinLease) }, &v.Renew, &v.Renewed)
	if err != nil {
		return err
	}
	fmt.Println("under way")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	close(advance.open)
	close(renew.open)
	<-over
	<-over
	v.Again = outcome(s.Advance(ctx, l, "incarnation 1", positionAt(60), nil))
	v.RenewAgain = outcome(s.Leases().Renew(ctx, l, blobstore.MinLease))
	_, err = s.Claim(ctx, l, "incarnation 1")
	v.Claim = outcome(err)
	v.Leave, v.Release = outcome(s.Leave(ctx, l)), outcome(s.Leases().Release(ctx, l))
	return json.NewEncoder(os.Stdout).Encode(v)
}

// actSuccessor takes the partition as soon as it can, and moves it to 9.
func actSuccessor(ctx context.Context, p place) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	s, err := blobstore.Open(ctx, p.name, &blobstore.Config{ConnectionString: p.connection})
	if err != nil {
		return err
	}
	var l driver.Lease
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if l, err = s.Leases().Acquire(ctx, group, "0", "successor", blobstore.MaxLease, 0); err == nil {
			break
		}
		if !errors.Is(err, driver.ErrHeld) {
			return err
		}
		<-tick.C
	}
	c, err := s.Claim(ctx, l, "incarnation 1")
	if err != nil {
		return err
	}
	if err := s.Advance(ctx, l, "incarnation 1", positionAt(9), []driver.SequenceRange{{First: 11, Last: 12}}); err != nil {
		return err
	}
	fmt.Println("took it at", c.Position.Sequence)
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	if err := s.Advance(ctx, l, "incarnation 1", positionAt(10), nil); err != nil {
		return err
	}
	return s.Leases().Renew(ctx, l, blobstore.MaxLease)
}

// actor is another process.
type actor struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func (p place) start(t *testing.T, part string) *actor {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), zombie+"="+part, "BLOBSTORE_CONNECTION="+p.connection, "BLOBSTORE_CONTAINER="+p.name)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return &actor{cmd, in, bufio.NewReader(out)}
}

// line waits for the next line that the process prints.
func (a *actor) line(t *testing.T) string {
	t.Helper()
	text, err := a.out.ReadString('\n')
	if err != nil || strings.HasPrefix(text, "failed") {
		t.Fatalf("another process: %s%v", text, err)
	}
	return strings.TrimSpace(text)
}

func (a *actor) signal(t *testing.T, sig syscall.Signal) {
	t.Helper()
	if err := a.cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

func (a *actor) goOn(t *testing.T) {
	t.Helper()
	if _, err := io.WriteString(a.in, "\n"); err != nil {
		t.Fatal(err)
	}
}

// A process that was paused past its lease can change nothing any more: neither
// by what it had under way, nor by what it begins after that.
func TestZombieProcess(t *testing.T) {
	t.Parallel() // it waits for the end of a lease
	p := newPlace(t)
	s := p.open(t)
	paused := p.start(t, "paused")
	if line := paused.line(t); line != "under way" {
		t.Fatal(line)
	}
	began := time.Now()
	paused.signal(t, syscall.SIGSTOP)
	successor := p.start(t, "successor")
	if line := successor.line(t); line != "took it at 5" {
		t.Fatal(line)
	}
	if waited := time.Since(began); waited < blobstore.MinLease/2 {
		t.Errorf("the successor had it %v after the pause began", waited)
	}
	before := progress(t, s)

	paused.signal(t, syscall.SIGCONT)
	paused.goOn(t)
	var v verdict
	if err := json.Unmarshal([]byte(paused.line(t)), &v); err != nil {
		t.Fatal(err)
	}
	for what, got := range map[string]string{
		"the checkpoint under way": v.Advance, "the renewal under way": v.Renew,
		"another checkpoint": v.Again, "another renewal": v.RenewAgain, "a claim": v.Claim,
	} {
		if got == "done" { // other failures are answers that it did not get
			need.Verdict(t)
		}
		if got != "fenced" {
			t.Errorf("%s of the paused process: %s, want that it is fenced", what, got)
		}
	}
	if v.Leave != "done" || v.Release != "done" {
		t.Errorf("leave: %s, release: %s", v.Leave, v.Release)
	}
	if !slices.Contains(v.Advanced, "metadata 412") {
		t.Errorf("the checkpoint under way: the server answered %q, want 412 to the write", v.Advanced)
	}
	if !slices.Contains(v.Renewed, "acquire 412") && !slices.Contains(v.Renewed, "acquire 409") {
		t.Errorf("the renewal under way: the server answered %q, want 412 or 409", v.Renewed)
	}
	if after := progress(t, s); after.Position != positionAt(9) || after.Owner != "successor" || after.Epoch != before.Epoch || after.Claims != before.Claims || len(after.Done) != 1 {
		need.Verdict(t)
		t.Errorf("the checkpoint was %+v, is %+v", before, after)
	}
	successor.goOn(t)
	if err := successor.cmd.Wait(); err != nil {
		t.Errorf("the successor, after the paused process went on: %v", err)
	}
	if after := progress(t, s); after.Position != positionAt(10) {
		t.Errorf("the successor has come to %v, want 10", after.Position)
	}
}
