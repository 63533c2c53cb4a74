package sluice_test

import (
	"context"
	"log"
	"log/slog"
	"strings"
	"sync"
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

func TestWithoutAnObserver(t *testing.T) {
	for _, test := range []struct {
		name     string
		observer driver.Observer
		want     string
	}{
		{"default", nil, "level=WARN msg=\"dependency error, retrying\" error=\"list leases: cut off\"\n"},
		{"silent", driver.ObserverFunc(func(driver.Observation) {}), ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				written := &lines{}
				written.defaultLog(t)
				_, end := enginetest.RunTransactional(t, sluicetest.NewHub(enginetest.Group, 1), lockedOut{}, &sluicetest.Store{}, nil, sluice.AllPartitions, sluice.Config{Observer: test.observer})
				synctest.Wait()
				end()
				if got := written.String(); got != test.want {
					t.Errorf("logged %q, want %q", got, test.want)
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
		cfg := sluice.Config{AssignEvery: 10 * time.Millisecond, Observer: sluice.LogObserver(written.logger())}
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
