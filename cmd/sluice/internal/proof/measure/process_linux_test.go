package measure

import (
	"os"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"github.com/sluice-go/sluice/internal/proof/need"
)

func TestActivityOf(t *testing.T) {
	need.RealTime(t)
	own := ActivityOf(os.Getpid())
	// A write to a pipe wakes its reader, which is locked to a thread.
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	go func() {
		runtime.LockOSThread()
		for b := make([]byte, 1); ; {
			if _, err := r.Read(b); err != nil {
				return
			}
		}
	}()
	for began := time.Now(); ; {
		if _, err := w.Write([]byte{1}); err != nil {
			t.Fatal(err)
		}
		now := ActivityOf(os.Getpid())
		if now.CPU > own.CPU && now.Wakeups > own.Wakeups {
			break
		}
		if time.Since(began) > time.Minute {
			t.Fatalf("%+v, then %+v", own, now)
		}
	}
	if none := ActivityOf(1 << 30); none != (Activity{}) {
		t.Errorf("no process: %+v", none)
	}
}

func TestResidentOf(t *testing.T) {
	debug.FreeOSMemory() // else the block may take pages that are resident already
	before := ResidentOf(os.Getpid())
	block := make([]byte, 64<<20)
	for i := 0; i < len(block); i += 4096 {
		block[i] = 1
	}
	after := ResidentOf(os.Getpid())
	runtime.KeepAlive(block)
	if before < 1<<20 || after < before+48<<20 {
		t.Errorf("%d bytes, %d with 64 MiB more", before, after)
	}
	if Load() <= 0 {
		t.Error("no load average")
	}
}
