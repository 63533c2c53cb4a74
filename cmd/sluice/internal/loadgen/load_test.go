package loadgen_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/cmd/sluice/internal/loadgen"
)

func newLoad(t testing.TB, keys, count int64, cfg *loadgen.LoadConfig) (*loadgen.Load, *loadgen.Documents) {
	t.Helper()
	docs, err := loadgen.NewDocuments(&loadgen.DocumentsConfig{Keys: keys})
	if err != nil {
		t.Fatal(err)
	}
	l, err := loadgen.NewLoad(docs, count, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return l, docs
}

// TestLoad deals the documents out to parts: each once, those of a key in one
// part and in order. They are kept, since nothing of them may change.
func TestLoad(t *testing.T) {
	for _, c := range []struct {
		replicas    int
		keys, count int64
	}{{1, 0, 20_000}, {3, 100, 20_003}, {5, 7, 300}, {2, 3, 9000}, {4, 70_000, 3}} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			l, docs := newLoad(t, c.keys, c.count, &loadgen.LoadConfig{Replicas: c.replicas})
			seen, home, last := make([]bool, c.count), map[string]int{}, map[string]int64{}
			for part := range c.replicas {
				var list []loadgen.Document
				for d := range l.Part(t.Context(), part) {
					list = append(list, d)
				}
				for _, d := range list {
					n, ok := docs.Number(d.ID)
					if !ok || n >= c.count || seen[n] {
						t.Fatalf("document %s was not to be drawn, or has been", d.ID)
					}
					seen[n] = true
					if string(d.Body) != string(docs.Append(nil, n)) || d.Key != docs.Key(n) {
						t.Fatalf("document %d of key %s is %s", n, d.Key, d.Body)
					}
					if h, ok := home[d.Key]; ok && (h != part || last[d.Key] > n) {
						t.Fatalf("document %d in part %d comes after %d in %d", n, part, last[d.Key], h)
					}
					home[d.Key], last[d.Key] = part, n
				}
			}
			for n, ok := range seen {
				if !ok {
					t.Fatalf("document %d is missing", n)
				}
			}
		})
	}
}

// TestLoadRate has two parts share a rate, and end with their context.
func TestLoadRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLoad(t, 0, 1_000_000, &loadgen.LoadConfig{Replicas: 2, Rate: 2000})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var counts [2]int
		var parts sync.WaitGroup
		for p := range counts {
			parts.Go(func() {
				for range l.Part(ctx, p) {
					counts[p]++
				}
			})
		}
		parts.Wait()
		if n := counts[0] + counts[1]; n < 1990 || n > 2010 || min(counts[0], counts[1]) < 500 {
			t.Errorf("drew %v documents in a second at 2,000 a second", counts)
		}
	})
}

func TestLoadsThatMakeNoSense(t *testing.T) {
	docs, err := loadgen.NewDocuments(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		count int64
		cfg   loadgen.LoadConfig
	}{{0, loadgen.LoadConfig{}}, {1e12, loadgen.LoadConfig{}}, {1, loadgen.LoadConfig{Replicas: -1}}, {1, loadgen.LoadConfig{Rate: -1}}, {1, loadgen.LoadConfig{Rate: 1e8}}} {
		if _, err := loadgen.NewLoad(docs, c.count, &c.cfg); err == nil {
			t.Errorf("no error for %+v", c)
		}
	}
}
