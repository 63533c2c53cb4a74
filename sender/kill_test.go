package sender_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/internal/proof/asazure"
	"github.com/sluice-go/sluice/internal/proof/freeport"
	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/sender"
)

// If these are set, the test binary is an emulator of a target, which can be
// killed: over a directory, at an address.
const (
	targetVariable = "SLUICE_TEST_SENDER_TARGET"
	dirVariable    = "SLUICE_TEST_SENDER_DIR"
	listenVariable = "SLUICE_TEST_SENDER_LISTEN"
)

func TestMain(m *testing.M) {
	if name := os.Getenv(targetVariable); name != "" {
		if err := serve(name, os.Getenv(dirVariable), os.Getenv(listenVariable)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// serve runs the emulator until standard input ends, which it does when the
// parent process ends.
func serve(target, dir, listen string) error {
	var srv interface {
		ConnectionString() string
		Close() error
	}
	var err error
	if target == "hub" {
		srv, err = emulator.Start([]emulator.Hub{{Name: hub, Partitions: faultyPartitions}}, &emulator.Config{Dir: dir, Listen: listen, MaxMessageBytes: 100_000, AsAzure: asazure.FreshRuntime()})
	} else {
		srv, err = emulator.StartServiceBus([]emulator.ServiceBusQueue{{Name: queue}}, nil, &emulator.ServiceBusConfig{Dir: dir, Listen: listen})
	}
	if err != nil {
		return err
	}
	fmt.Println(srv.ConnectionString())
	_, err = io.Copy(io.Discard, os.Stdin)
	return errors.Join(err, srv.Close())
}

// killable is an emulator in a process of its own.
type killable struct {
	t          testing.TB
	target     string
	dir        string
	listen     string // the same address after each start
	connection string
	kill       func()
}

func startKillable(t testing.TB, target string) *killable {
	t.Helper()
	l, err := freeport.Listen()
	if err != nil {
		t.Fatal(err)
	}
	m := &killable{t: t, target: target, dir: t.TempDir(), listen: l.Addr().String()}
	l.Close()
	m.start()
	return m
}

// start starts the process, again after a kill.
func (m *killable) start() {
	m.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), targetVariable+"="+m.target, dirVariable+"="+m.dir, listenVariable+"="+m.listen)
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
		m.t.Fatalf("the emulator doesn't start: %v", err)
	}
	m.connection = strings.TrimSpace(line)
}

// open makes a transport to it.
func (m *killable) open() sender.Transport {
	if m.target == "queue" {
		return openBus(m.t, m.connection, queue, writers)
	}
	h, err := sender.OpenEventHub(m.connection, hub, nil)
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { h.Close(testContext(m.t)) })
	return h
}

// TestKilled kills the emulator while messages are sent: several times, and starts
// it again, or once for good. The report agrees with what is on the emulator's
// disk, message by message.
func TestKilled(t *testing.T) {
	need.RealTime(t)
	for name, revive := range targets {
		for end, returns := range map[string]bool{"returns": true, "is gone": false} {
			t.Run(name+" "+end, func(t *testing.T) {
				m := startKillable(t, name)
				mix := small
				if name == "queue" {
					mix = small.sessions()
				}
				var accepted atomic.Int64
				cfg := &sender.Config{
					Attempts: 60, RetryMin: time.Millisecond, RetryMax: 100 * time.Millisecond,
					OnAccepted: func(list []sender.IndexRange) { accepted.Add(total(list)) },
				}
				if returns {
					cfg.Attempts = 1200 // two minutes: a start takes many seconds on a busy machine
				}
				ctx := testContext(t)
				report, err := sender.New(m.open(), cfg).SendAll(ctx, func(yield func(sender.Message) bool) {
					for i := range mix.count {
						switch i {
						case 501, 1303, 1999:
							if returns {
								m.kill()
								m.start()
							}
						case 2502:
							for accepted.Load() < mix.count/2 && ctx.Err() == nil {
								<-time.After(time.Millisecond)
							}
							m.kill()
							if returns {
								m.start()
							}
						}
						if !yield(mix.message(i)) {
							return
						}
					}
				})
				if returns != (err == nil) || returns != (report.Messages == mix.count) || report.Messages < mix.count/2 {
					t.Errorf("%d of %d accepted: %v", report.Messages, mix.count, err)
				}
				m.kill()
				t.Logf("%d retries; %d messages may be there twice, %d are unsent, %d unknown", report.Retries, total(report.PossibleDuplicates), total(report.Unsent), total(report.Unknown))
				checkReport(t, report, revive(t, m.dir).inventory())
			})
		}
	}
}
