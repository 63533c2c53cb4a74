package cosmos

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/proof/need"
)

// world is an account with two regions: its global endpoint says which of them take
// writes.
type world struct {
	*httptest.Server
	regions [2]*fake
	write   atomic.Int32 // the region that takes writes
	multi   atomic.Bool  // both do
	looks   atomic.Int32 // at the account
}

func newWorld(t *testing.T) *world {
	w := &world{regions: [2]*fake{newFake(t), newFake(t)}}
	w.Server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if strings.Trim(r.URL.Path, "/") != "" {
			rw.WriteHeader(http.StatusNotFound)
			return
		}
		w.looks.Add(1)
		at := func(i int) string {
			return fmt.Sprintf(`{"name":"%s","databaseAccountEndpoint":"%s/"}`, [2]string{"East US", "West US"}[i], w.regions[i].URL)
		}
		both := "[" + at(0) + "," + at(1) + "]"
		write := both
		if !w.multi.Load() {
			write = "[" + at(int(w.write.Load())) + "]"
		}
		fmt.Fprintf(rw, `{"id":"world","writableLocations":%s,"readableLocations":%s,"enableMultipleWriteLocations":%t}`, write, both, w.multi.Load())
	}))
	t.Cleanup(w.Close)
	return w
}

// untilWritten submits a document until it is written, as the engine does.
func untilWritten(t *testing.T, s *Sink, d Document) (failures []error) {
	t.Helper()
	for end := time.Now().Add(patience); ; {
		r := submit(t, s, d)[0]
		if r.Err == nil {
			return failures
		}
		failures = append(failures, r.Err)
		if time.Now().After(end) {
			t.Fatalf("not written in %v: %v", patience, r.Err)
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-t.Context().Done():
		}
	}
}

// TestFailover: the write region is gone, and the account's other region takes writes:
// the sink finds it by itself, without the five minutes after which the SDK looks.
func TestFailover(t *testing.T) {
	w := newWorld(t)
	s := open(t, w.URL, testKey, &Config{Timeout: patience})
	untilWritten(t, s, document(0))
	w.regions[0].CloseClientConnections()
	w.regions[0].Close()
	for _, r := range submit(t, s, document(1), document(2)) { // no region takes writes yet
		if r.Err == nil {
			t.Fatal("written in a region that is gone")
		}
	}
	w.write.Store(1)
	failures := untilWritten(t, s, document(3))
	if w.regions[1].count() != 1 {
		t.Errorf("%d documents in the other region", w.regions[1].count())
	}
	for _, err := range failures {
		if errors.Is(err, sluice.ErrRejected) {
			t.Errorf("the document is blamed: %v", err)
		}
	}
}

// TestFailoverOf503: a region that only answers 503 is left too.
func TestFailoverOf503(t *testing.T) {
	w := newWorld(t)
	s := open(t, w.URL, testKey, nil)
	untilWritten(t, s, document(0))
	w.regions[0].replace(func() {
		w.regions[0].answer = func(rw http.ResponseWriter, _ *http.Request, _ []fakeOperation) bool {
			rw.WriteHeader(http.StatusServiceUnavailable)
			return true
		}
	})
	w.write.Store(1)
	untilWritten(t, s, document(1))
	if w.regions[1].count() != 1 {
		t.Errorf("%d documents in the other region", w.regions[1].count())
	}
}

// TestOneRegionIsAway: an account that cannot be reached is looked at with pauses.
func TestOneRegionIsAway(t *testing.T) {
	need.RealTime(t)
	w := newWorld(t)
	s := open(t, w.URL, testKey, nil)
	untilWritten(t, s, document(0))
	before, began := w.looks.Load(), time.Now()
	w.regions[0].CloseClientConnections()
	w.regions[0].Close()
	for range 200 {
		if r := submit(t, s, document(1))[0]; !errors.Is(r.Err, sluice.ErrOutage) {
			t.Fatalf("got %v", r.Err)
		}
	}
	took := time.Since(began)
	if n := w.looks.Load() - before; n > 5+int32(took/findRegionEvery) {
		t.Errorf("the account was read %d times in %v", n, took)
	}
}

// TestSeveralWriteRegions: conditions do not hold across regions, so a conditional write
// is refused, and the check at the start says why. Other writes prefer the regions that
// the user names, and go to the next one when a region is gone.
func TestSeveralWriteRegions(t *testing.T) {
	w := newWorld(t)
	w.multi.Store(true)
	s := open(t, w.URL, testKey, &Config{Conditional: true, Timeout: patience, Client: azcosmos.ClientOptions{PreferredRegions: []string{"West US", "East US"}}})
	if err := s.Check(t.Context()); !errors.Is(err, ErrMultiRegionWrites) || strings.Contains(err.Error(), "\n") {
		t.Errorf("check: %v", err)
	}
	r := submit(t, s, event("a", 1, 1))[0]
	if !errors.Is(r.Err, ErrMultiRegionWrites) || !errors.Is(r.Err, sluice.ErrOutage) {
		t.Errorf("a conditional write: %v", r.Err)
	}
	untilWritten(t, s, document(0))
	if w.regions[0].count() != 0 || w.regions[1].count() != 1 {
		t.Errorf("%d and %d documents", w.regions[0].count(), w.regions[1].count())
	}
	w.regions[1].CloseClientConnections()
	w.regions[1].Close()
	untilWritten(t, s, document(1))
	if w.regions[0].count() != 1 {
		t.Error("not written in the region that is left")
	}

	plain := open(t, w.URL, testKey, nil)
	if err := plain.Check(t.Context()); err != nil {
		t.Errorf("check without conditions: %v", err)
	}
}

// TestOnePartitionOf503: with multi-region writes, one physical partition that answers 503
// does not move the writes of the others to another region.
func TestOnePartitionOf503(t *testing.T) {
	need.RealTime(t)
	for range 20 {
		if testOnePartitionOf503(t) {
			return
		}
	}
	t.Fatalf("twenty times more than %v for two writes", findRegionEvery)
}

// testOnePartitionOf503 returns false if the other partition was silent for so long that
// the sink may take the region for one that is gone.
func testOnePartitionOf503(t *testing.T) bool {
	w := newWorld(t)
	w.multi.Store(true)
	w.regions[0].answer = func(rw http.ResponseWriter, _ *http.Request, operations []fakeOperation) bool {
		bad := slices.ContainsFunc(operations, func(o fakeOperation) bool { return strings.Contains(o.PartitionKey, "k13") })
		if bad {
			rw.WriteHeader(http.StatusServiceUnavailable)
		}
		return bad
	}
	s := open(t, w.URL, testKey, &Config{Client: azcosmos.ClientOptions{PreferredRegions: []string{"East US", "West US"}}})
	for began := time.Now(); time.Since(began) < 3*findRegionEvery; {
		wrote := time.Now()
		untilWritten(t, s, document(14))
		r := submit(t, s, document(13))[0]
		if time.Since(wrote) >= findRegionEvery {
			return false
		}
		if r.Err == nil {
			t.Fatalf("got %v, want a 503", r.Err)
		}
		if n := w.regions[1].count(); n > 0 {
			t.Fatalf("%d documents in the other region", n)
		}
	}
	// Alone it moves, as if the region had failed.
	untilWritten(t, s, document(13))
	if w.regions[1].count() != 1 {
		t.Error("not written in the other region")
	}
	return true
}
