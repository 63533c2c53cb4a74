//go:build unix

package disklog

import (
	"context"
	"errors"
	"fmt"
	"math"
	"syscall"
	"testing"

	"github.com/sluice-go/sluice/internal/proof/need"
)

func init() {
	tasks["limit"] = func(args []string) error { return appendUpToLimit(args[0]) }
}

// TestFileSizeLimit runs a process with a limit on file sizes, which simulates a
// full disk.
func TestFileSizeLimit(t *testing.T) {
	need.RealTime(t)
	dir := t.TempDir()
	out, err := child("limit", dir).Output()
	if err != nil {
		t.Fatalf("child: %v: %s", err, out)
	}
	var appended int64
	if _, err := fmt.Sscan(string(out), &appended); err != nil || appended < 100 {
		t.Fatalf("child printed %q", out)
	}
	l := mustOpen(t, dir, nil)
	defer mustClose(t, l)
	if info := l.Info(); info.Last != appended-1 {
		t.Errorf("the last event is %d, want %d", info.Last, appended-1)
	}
	events, err := l.Read(0, math.MaxInt, math.MaxInt, nil)
	if err != nil || int64(len(events)) != appended {
		t.Errorf("read %d events, %v", len(events), err)
	}
}

// appendUpToLimit appends until a write fails, again with the limit in force, and
// once more after it is lifted. It prints how many events were acknowledged.
func appendUpToLimit(dir string) error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	lifted := limit
	limit.Cur = 300_000
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	l, err := Open(dir, nil)
	if err != nil {
		return err
	}
	batch := benchmarkBatch(10, 1000)
	appended := 0
	add := func() error {
		first, err := l.Append(context.Background(), batch)
		if err == nil && first != int64(appended) {
			return fmt.Errorf("acknowledged as %d, want %d", first, appended)
		}
		if err == nil {
			appended += len(batch)
		}
		return err
	}
	for err == nil {
		err = add()
	}
	for range 3 {
		var failed *WriteError
		if !errors.As(err, &failed) || failed.Unusable || !errors.Is(err, syscall.EFBIG) {
			return fmt.Errorf("append beyond the limit: %w", err)
		}
		err = add()
	}
	if events, err := l.Read(0, math.MaxInt, math.MaxInt, nil); err != nil || len(events) != appended {
		return fmt.Errorf("read %d of %d events: %w", len(events), appended, err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &lifted); err != nil {
		return err
	}
	if err := add(); err != nil {
		return fmt.Errorf("append after the limit was lifted: %w", err)
	}
	fmt.Println(appended)
	return l.Close()
}
