package crash

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/sqlstore"
	"github.com/sluice-go/sluice/webhook"
)

// With copiesEnv the consumer copies its dead letters to that URL, and kills itself now and then:
// when a dead letter is stored, before it is copied, and before it is marked so.
const copiesEnv = "CRASH_TEST_COPIES"

func init() {
	for scheme, make := range map[string]func(*sqlstore.Store) sluice.Delivery{
		"copies-transactional": func(s *sqlstore.Store) sluice.Delivery {
			return sluice.Transactional(s, sluice.Each(func(_ context.Context, _ *sqlstore.Tx, e *sluice.Event) error { return refuse(e) }))
		},
		"copies-batches": func(s *sqlstore.Store) sluice.Delivery {
			return sluice.Batches(s, func(_ context.Context, b sluice.Batch) error {
				var errs []error
				for i, e := range b.Events {
					if err := refuse(e); err != nil {
						errs = append(errs, &driver.EventError{Index: i, Err: err})
					}
				}
				return errors.Join(errs...)
			}, nil)
		},
		"copies-atleastonce": func(s *sqlstore.Store) sluice.Delivery {
			workers, _ := sluice.Workers(4, func(_ context.Context, e *sluice.Event) error { return refuse(e) })
			return sluice.AtLeastOnce(s, sluice.EventAsRecord, workers, nil)
		},
	} {
		databases[scheme] = func(_ context.Context, path string) (sluice.Delivery, driver.LeaseStore, error) {
			s, err := sqlstore.OpenSQLite(strings.TrimPrefix(path, scheme+":"), nil)
			if err != nil {
				return nil, nil, err
			}
			return make(s), s.Leases(), nil
		}
	}
}

func refuse(e *sluice.Event) error {
	if string(e.Body) == "bad" {
		return driver.Reject(errors.New("no"))
	}
	return nil
}

// dice are a consumer's. It throws them in several goroutines.
type dice struct {
	mu     sync.Mutex
	random *rand.Rand
}

// dieOnceIn ends the process without a trace, once in n calls on average.
func (d *dice) dieOnceIn(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.random.IntN(n) == 0 {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

// copying sets up copies, if they are asked for.
func copying(cfg *sluice.Config) error {
	url := os.Getenv(copiesEnv)
	if url == "" {
		return nil
	}
	seed, err := strconv.ParseUint(os.Getenv(seedEnv), 10, 64)
	if err != nil {
		return err
	}
	dice := &dice{random: rand.New(rand.NewPCG(seed, 0))}
	sink, err := webhook.New(url, nil)
	if err != nil {
		return err
	}
	send := sluice.CopyTo(sink, webhook.DeadLetterMessages("sluice deadletters retry --config p.yaml"))
	cfg.CopyDeadLetters = func(ctx context.Context, dead []sluice.DeadLetter) error {
		dice.dieOnceIn(8)
		err := send(ctx, dead)
		dice.dieOnceIn(8)
		return err
	}
	cfg.Observer = driver.ObserverFunc(func(o driver.Observation) {
		if o.Kind == driver.KindParked {
			dice.dieOnceIn(100)
		}
	})
	return nil
}

// receiver takes copies. Of five requests it fails one.
type receiver struct {
	mu     sync.Mutex
	random *rand.Rand
	copies map[string]int // by partition/sequence
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	var events []struct {
		Type string
		Data struct {
			Partition, Error, Redrive, Body string
			ID, Sequence                    int64
		}
	}
	if err == nil {
		err = json.Unmarshal(body, &events)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil || r.random.IntN(5) == 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	for _, e := range events {
		if d := e.Data; e.Type != "sluice.deadletter" || d.Error != "no" || d.Body != "bad" || d.Redrive != fmt.Sprint("sluice deadletters retry --config p.yaml ", d.ID) {
			r.copies[fmt.Sprintf("wrong: %+v", e)]++
		}
		r.copies[fmt.Sprint(e.Data.Partition, "/", e.Data.Sequence)]++
	}
}

func (r *receiver) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.copies)
}

// TestCopiesUnderKill kills consumers at each point between a dead letter's event and the mark of
// its copy. Each dead letter arrives, at least once.
func TestCopiesUnderKill(t *testing.T) {
	t.Parallel()
	for _, delivery := range []string{"transactional", "batches", "atleastonce"} {
		t.Run(delivery, func(t *testing.T) {
			t.Parallel()
			database, n := sqlite(t)
			bodies, bad := make([]string, 3000), 0
			for i := range bodies {
				if i%10 < 2 {
					bodies[i] = "bad"
					bad++
				}
			}
			r := &receiver{random: need.Rand(t), copies: map[string]int{}}
			server := httptest.NewServer(r)
			t.Cleanup(server.Close)
			a := newArena(t, "copies-"+delivery+strings.TrimPrefix(database, "sqlite"), bodies)
			a.env = []string{copiesEnv + "=" + server.URL}
			deaths := 0
			for uncopied := bad; uncopied > 0; uncopied = bad - n("SELECT count(*) FROM sluice_dead_letters WHERE copied = 1") {
				if deaths == 200 {
					t.Fatalf("%d of %d dead letters are not copied after %d processes", uncopied, bad, deaths)
				}
				cmd := a.start()
				ended := make(chan struct{})
				go func() { defer close(ended); _ = cmd.Wait() }()
				await(t, time.Minute, "death or the end", func() bool {
					select {
					case <-ended:
						return true
					default:
						return n("SELECT count(*) FROM sluice_dead_letters WHERE copied = 1") == bad
					}
				})
				_ = cmd.Process.Kill()
				<-ended
				a.running = nil
				deaths++
			}
			server.Close() // waits for the requests of killed processes
			repeats := 0
			for _, times := range r.copies {
				repeats += times - 1
			}
			t.Logf("%d processes: %d dead letters, %d copied more than once", deaths, bad, repeats)
			if deaths < 5 {
				t.Errorf("only %d processes", deaths)
			}
			need.Verdict(t)
			if r.count() != bad {
				t.Errorf("%d of %d dead letters have arrived", r.count(), bad)
			}
		})
	}
}
