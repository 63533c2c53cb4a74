package sluice_test

import (
	"context"
	"errors"
	"log"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine/enginetest"
	"github.com/sluice-go/sluice/sluicetest"
)

func TestMain(m *testing.M) { enginetest.Main(m) }

// lines is the log lines that were written, without the time.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *lines) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

// defaultLog makes l the default log while the test runs.
func (l *lines) defaultLog(t *testing.T) {
	before, writer, flags := slog.Default(), log.Writer(), log.Flags()
	slog.SetDefault(l.logger())
	t.Cleanup(func() {
		slog.SetDefault(before)
		log.SetOutput(writer)
		log.SetFlags(flags)
	})
}

// lockedOut is a lease store that cannot be reached.
type lockedOut struct{ driver.LeaseStore }

func (lockedOut) List(context.Context, sluice.Group) ([]driver.LeaseInfo, error) {
	return nil, enginetest.ErrCut
}

// The log and an observer are side by side. A logger that discards is silent.
func TestLogAndObserver(t *testing.T) {
	const line = "level=WARN msg=\"dependency error, retrying\" topic=events group=$Default error=\"list leases: cut off\"\n"
	own := &lines{}
	for _, test := range []struct {
		name      string
		logger    *slog.Logger
		want, own string
	}{
		{"default", nil, line, ""},
		{"a logger", own.logger(), "", line},
		{"silent", slog.New(slog.DiscardHandler), "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				written := &lines{}
				written.defaultLog(t)
				own.text.Reset()
				var observed atomic.Int32
				count := driver.ObserverFunc(func(o driver.Observation) {
					if o.Kind == driver.KindFailed && o.Group == enginetest.Group {
						observed.Add(1)
					}
				})
				_, end := enginetest.RunTransactional(t, sluicetest.NewHub(enginetest.Group, 1), lockedOut{}, &sluicetest.Store{}, nil, sluice.AllPartitions,
					sluice.Config{Logger: test.logger, Observer: driver.Observers(nil, count)})
				synctest.Wait()
				end()
				if got, gotOwn := written.String(), own.String(); got != test.want || gotOwn != test.own {
					t.Errorf("logged %q and %q, want %q and %q", got, gotOwn, test.want, test.own)
				}
				if observed.Load() != 1 {
					t.Errorf("%d observations of the failure", observed.Load())
				}
			})
		})
	}
}

// A failure that lasts is ten lines a minute, with the number of those that were held
// back.
func TestLogOfAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		written := &lines{}
		cfg := sluice.Config{AssignEvery: 10 * time.Millisecond, Logger: written.logger()}
		_, end := enginetest.RunTransactional(t, sluicetest.NewHub(enginetest.Group, 1), lockedOut{}, &sluicetest.Store{}, nil, sluice.AllPartitions, cfg)
		time.Sleep(10 * time.Minute)
		end()
		if n := strings.Count(written.String(), "\n"); n > 150 {
			t.Errorf("%d lines in ten minutes", n)
		}
		for _, more := range []string{"490 more", "5990 more"} {
			if !strings.Contains(written.String(), "dependency error, retrying: "+more) {
				t.Errorf("%s is missing in %s", more, written)
			}
		}
	})
}

// What is said of a dead letter names its event.
func TestDeadLetterIsNamed(t *testing.T) {
	reject := driver.Reject(errors.New("no"))
	for name, delivery := range map[string]sluice.Delivery{
		"Transactional": sluice.Transactional(&sluicetest.Store{}, sluice.Each(func(context.Context, *sluicetest.Tx, *sluice.Event) error { return reject })),
		"AtLeastOnce":   sluice.AtLeastOnce(&sluicetest.Store{}, sluice.EventAsRecord, enginetest.Must(sluice.Workers(1, func(context.Context, *sluice.Event) error { return reject })), nil),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hub, written := sluicetest.NewHub(enginetest.Group, 1), &lines{}
				hub.Append("0", &sluice.Event{Offset: "o-7", MessageID: "m-7"})
				parked := make(chan driver.Observation, 9)
				_, end := enginetest.Run(t, hub, enginetest.NewLedger(), delivery, sluice.AllPartitions, sluice.Config{
					Logger: written.logger(),
					Observer: driver.ObserverFunc(func(o driver.Observation) {
						if o.Kind == driver.KindParked {
							parked <- o
						}
					}),
				})
				o := <-parked
				end()
				if o.Event == nil || o.Event.MessageID != "m-7" || o.Event.Sequence != o.To.Sequence || o.Group != enginetest.Group {
					t.Errorf("%+v of %+v", o, o.Event)
				}
				want := "msg=\"event stored as dead letter\" topic=events group=$Default partition=0 epoch=1 sequence=0 offset=" + o.To.Offset + " id=m-7 attempt=1"
				if !strings.Contains(written.String(), want) {
					t.Errorf("%s is not in %s", want, written)
				}
			})
		})
	}
}
