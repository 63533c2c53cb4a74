package cosmosdb

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-go/sluice/internal/partitionkey"
)

// A container and a map get the same random operations, batches that are rolled back
// and splits, and have the same content in the end.
func TestModel(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			testModel(t, rand.New(rand.NewPCG(seed, 1)))
		})
	}
}

func testModel(t *testing.T, rnd *rand.Rand) {
	account, err := Open([]ContainerConfig{{Database: "db", Name: "docs", Paths: []string{"/key"}, Partitions: 2, Version: 1 + rnd.IntN(2)}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer account.Close()
	c, _ := account.Container("db", "docs")
	model := make(map[string]string) // body by key and id
	numbers := make(map[string]uint64)
	for range 4000 {
		key, id := fmt.Sprint("k", rnd.IntN(30)), fmt.Sprint(rnd.IntN(12))
		name := key + "/" + id
		body := fmt.Sprintf(`{"id":"%s","key":"%s","x":"%s"`, id, key, strings.Repeat("x", rnd.IntN(1<<rnd.IntN(12))))
		var d document
		if err := d.read([]byte(body+"}"), c.paths); err != nil {
			t.Fatal(err)
		}
		p := c.route(c.hash.Hash(d.key...))
		op := operation{verb: verb(1 + rnd.IntN(5)), doc: &d, id: d.id, keyText: d.keyText, hash: hashOf(d.keyText, d.id)}
		old, exists := model[name]
		p.mu.Lock()
		switch rnd.IntN(20) {
		case 0:
			before := p.bytes
			var undo undoLog
			for range 1 + rnd.IntN(4) {
				op.verb = verb(1 + rnd.IntN(5))
				c.apply(p, &op, account.now(), &undo)
			}
			if err := p.rollback(&undo); err != nil || p.bytes != before {
				t.Fatalf("%d bytes, were %d, %v", p.bytes, before, err)
			}
		case 1:
			if len(c.ranges) < 12 && rnd.IntN(10) == 0 {
				p.mu.Unlock()
				if err := c.Split(p.id); err != nil {
					t.Fatal(err)
				}
				p.mu.Lock()
			}
		default:
			res := c.apply(p, &op, account.now(), nil)
			want := map[verb]map[bool]int{
				verbCreate: {false: 201, true: 409}, verbUpsert: {false: 201, true: 200}, verbReplace: {false: 404, true: 200}, verbRead: {false: 404, true: 200}, verbDelete: {false: 404, true: 204},
			}[op.verb][exists]
			if res.status != want {
				t.Fatalf("verb %d of %s: %d, want %d", op.verb, name, res.status, want)
			}
			switch {
			case op.verb == verbRead && exists && string(res.rec.body()) != old:
				t.Fatalf("%s is %s", name, res.rec.body())
			case op.verb == verbDelete:
				delete(model, name)
			case res.rec != nil && op.verb != verbRead:
				model[name] = body
				if exists && numbers[name] != res.rec.number() {
					t.Fatalf("%s has changed its number", name)
				}
				numbers[name] = res.rec.number()
			}
		}
		p.mu.Unlock()
	}
	if n := c.Stats().Documents; n != len(model) {
		t.Errorf("%d documents are counted, there are %d", n, len(model))
	}
	found, last, size := make(map[string]string), uint64(0), int64(0)
	for _, p := range c.partitions() {
		p.mu.Lock()
		last = 0
		p.order.each(0, func(r ref) bool {
			rec := p.record(r)
			var key []string
			if err := json.Unmarshal(rec.key(), &key); err != nil || rec.number() <= last {
				t.Fatalf("number %d after %d, %v", rec.number(), last, err)
			}
			last = rec.number()
			if h := c.hash.AppendHash(nil, mustKey(t, rec.key())...); !p.bounds.Contains(string(h)) {
				t.Errorf("%s is in the wrong partition", rec.key())
			}
			if at, _ := p.find(hashOf(rec.key(), rec.id()), rec.key(), rec.id()); at != r {
				t.Errorf("the index doesn't lead to %s", rec.id())
			}
			found[key[0]+"/"+string(rec.id())] = string(rec.body())
			return true
		})
		size += p.bytes
		p.mu.Unlock()
	}
	if len(found) != len(model) {
		t.Errorf("%d documents, want %d", len(found), len(model))
	}
	for name, body := range model {
		if found[name] != body {
			t.Errorf("%s is %.60s, want %.60s", name, found[name], body)
		}
		size -= int64(len(body)) + 1
	}
	if size != 0 {
		t.Errorf("%d bytes are counted too many", size)
	}
}

func mustKey(t *testing.T, text []byte) []partitionkey.Value {
	values, f := (&Container{paths: []keyPath{{"key"}}}).parseKey(string(text))
	if f != nil {
		t.Fatal(f.message)
	}
	return values
}

// Documents with the same hash are kept apart.
func TestCollisions(t *testing.T) {
	p := newPartition("0", partitionkey.Whole, &arena{}, nil)
	defer p.arena.close()
	refs := make(map[string]ref)
	for _, id := range []string{"a", "b", "c"} {
		d := document{id: []byte(id), keyText: []byte(`["k"]`), body: []byte("{" + id)}
		if _, err := p.insert(7, &d, uint64(id[0]), 1, 1); err != nil {
			t.Fatal(err)
		}
		refs[id] = p.index[7]
	}
	check := func(want string) {
		t.Helper()
		got := ""
		for _, id := range []string{"a", "b", "c"} {
			if r, rec := p.find(7, []byte(`["k"]`), []byte(id)); r != 0 {
				got += string(bytes.TrimPrefix(rec.body(), []byte("{")))
			}
		}
		if got != want {
			t.Errorf("found %q, want %q", got, want)
		}
	}
	check("abc")
	p.remove(7, refs["b"])
	check("ac")
	p.remove(7, refs["c"])
	check("a")
	p.remove(7, refs["a"])
	check("")
	if len(p.index) != 0 || p.order.live != 0 {
		t.Error("something is left")
	}
}

func TestBlockSize(t *testing.T) {
	for n := 1; n < 3<<20; n = n + 1 + n/50 {
		if size := blockSize(n); size < n || blockSize(size) != size || size-n > max(minBlock, n/8) {
			t.Fatalf("%d bytes: a block of %d", n, size)
		}
	}
	h := &arena{}
	defer h.close()
	r, err := h.alloc(1000)
	if err != nil {
		t.Fatal(err)
	}
	h.release(r, 1000)
	if again, _ := h.alloc(1024); again != r || h.size() != 1024 {
		t.Errorf("%d is given out again, %d bytes are taken", again, h.size())
	}
	if _, err := h.alloc(1 << 20); err != nil {
		t.Error(err)
	}
	if err := h.close(); err != nil {
		t.Error(err)
	}
}

// Writers, readers, splits and the deletion of a container run concurrently.
func TestConcurrent(t *testing.T) {
	account, err := Open([]ContainerConfig{{Database: "db", Name: "docs", Paths: []string{"/key"}, Partitions: 2}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer account.Close()
	c, _ := account.Container("db", "docs")
	var group sync.WaitGroup
	for w := range 4 {
		group.Go(func() {
			for i := range 2000 {
				key := fmt.Sprint("k", i%50)
				var d document
				if err := d.read(fmt.Appendf(nil, `{"id":"%d-%d","key":"%s"}`, w, i, key), c.paths); err != nil {
					t.Error(err)
					return
				}
				for {
					p := c.route(c.hash.Hash(d.key...))
					p.mu.Lock()
					if p.gone {
						p.mu.Unlock()
						continue
					}
					op := operation{verb: verbUpsert, doc: &d, id: d.id, keyText: d.keyText, hash: hashOf(d.keyText, d.id)}
					res := c.apply(p, &op, account.now(), nil)
					p.mu.Unlock()
					if res.status != 201 {
						t.Errorf("status %d", res.status)
					}
					break
				}
			}
		})
	}
	group.Go(func() {
		for range 6 {
			if err := c.Split(c.partitions()[0].id); err != nil {
				t.Error(err)
			}
			c.Stats()
		}
	})
	group.Wait()
	if s := c.Stats(); s.Documents != 8000 || len(s.Ranges) != 8 {
		t.Errorf("%d documents in %d ranges", s.Documents, len(s.Ranges))
	}
}
