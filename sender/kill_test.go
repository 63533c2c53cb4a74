package sender_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/sender"
)

// The test binary is an emulator over a directory, at an address, if these are
// set: one that can be killed.
const (
	dirVariable    = "SLUICE_TEST_SENDER_DIR"
	listenVariable = "SLUICE_TEST_SENDER_LISTEN"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(dirVariable); dir != "" {
		if err := serve(dir, os.Getenv(listenVariable)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// serve runs the emulator until standard input ends, as it does with the parent.
func serve(dir, listen string) error {
	srv, err := emulator.Start([]emulator.Hub{{Name: hub, Partitions: faultyPartitions}}, &emulator.Config{Dir: dir, Listen: listen, MaxMessageBytes: 100_000})
	if err != nil {
		return err
	}
	fmt.Println(srv.ConnectionString())
	_, err = io.Copy(io.Discard, os.Stdin)
	return errors.Join(err, srv.Close())
}

// mortal is an emulator in a process of its own.
type mortal struct {
	t          testing.TB
	dir        string
	listen     string // the address of all its lives
	connection string
	kill       func()
}

func beget(t testing.TB) *mortal {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	m := &mortal{t: t, dir: t.TempDir(), listen: l.Addr().String()}
	l.Close()
	m.live()
	return m
}

// live begins another life.
func (m *mortal) live() {
	m.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), dirVariable+"="+m.dir, listenVariable+"="+m.listen)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		m.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		m.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	m.kill = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		in.Close()
	})
	m.t.Cleanup(m.kill)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		m.t.Fatalf("the emulator doesn't live: %v", err)
	}
	m.connection = strings.TrimSpace(line)
}

// TestKilled kills the emulator several times while messages are sent, and
// starts it again, or in the end doesn't: the report agrees with what is on its
// disk, message by message.
func TestKilled(t *testing.T) {
	for name, returns := range map[string]bool{"returns": true, "is gone": false} {
		t.Run(name, func(t *testing.T) {
			m := beget(t)
			h, err := sender.OpenEventHub(m.connection, hub, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer h.Close(within(t))
			cfg := &sender.Config{Attempts: 20, RetryMin: time.Millisecond, RetryMax: 100 * time.Millisecond}
			all := func(yield func(sender.Message) bool) {
				for i := range small.count {
					switch i {
					case 501, 1303, 1999:
						m.kill()
						m.live()
					case 2502:
						m.kill()
						if returns {
							m.live()
						}
					}
					if !yield(small.message(i)) {
						return
					}
				}
			}
			report, err := sender.New(h, cfg).SendAll(within(t), all)
			if returns != (err == nil) || returns != (report.Messages == small.count) || report.Messages < small.count/2 {
				t.Errorf("%d of %d accepted: %v", report.Messages, small.count, err)
			}
			m.kill()
			t.Logf("%d retries; %d messages may be there twice, %d are unsent, %d unknown", report.Retries, total(report.Repeated), total(report.Unsent), total(report.Unknown))
			agree(t, report, inventory(t, start(t, faultyPartitions, &emulator.Config{Dir: m.dir}), small, faultyPartitions))
		})
	}
}
