package formats

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"os"
	"runtime/metrics"
	"strconv"
	"strings"
	"testing"
)

// bothAvro is a schema as this package and as the library decode it.
type bothAvro struct {
	ours    *AvroSchema
	library *librarySchema
}

// parseBoth parses a schema. Both or neither must be able to.
func parseBoth(t *testing.T, text string) (bothAvro, bool) {
	ours, err := ParseAvro(text)
	library, libraryErr := libraryAvro(text)
	if (err == nil) != (libraryErr == nil) {
		t.Fatalf("%s\nours %v\nlibrary %v", text, err, libraryErr)
	}
	return bothAvro{ours, library}, err == nil
}

// check compares what a body becomes, and reports whether it becomes anything.
func (b bothAvro) check(t *testing.T, body []byte) bool {
	t.Helper()
	const limit = 64 << 20
	want, wantErr := b.library.decode(body)
	got, err := b.ours.decode(body, limit)
	switch {
	case (err == nil) != (wantErr == nil):
		t.Fatalf("%q of %s\nours %v\nlibrary %v", body, b.library.schema, err, wantErr)
	case err != nil && (strings.Contains(err.Error(), "\n") || len(err.Error()) > 300):
		t.Fatalf("%v", err)
	case err == nil && !bytes.Equal(got, want):
		t.Fatalf("%q of %s\ngot  %s\nwant %s", body, b.library.schema, got, want)
	case err == nil && !json.Valid(got):
		t.Fatalf("%q of %s\ngot  %s", body, b.library.schema, got)
	}
	return err == nil
}

// resolve returns a schema that reads what writer has written. Both or neither must be able to.
func (b bothAvro) resolve(t *testing.T, writer bothAvro) (bothAvro, bool) {
	ours, err := b.ours.resolve(writer.ours)
	library, libraryErr := b.library.resolve(writer.library)
	if (err == nil) != (libraryErr == nil) {
		t.Fatalf("%s\nread as %s\nours %v\nlibrary %v", writer.ours.schema, b.ours.schema, err, libraryErr)
	}
	return bothAvro{ours, library}, err == nil
}

// fuzz compares what any body becomes, if it is not too large: the library may take all memory
// then.
func (b bothAvro) fuzz(t *testing.T, body []byte) {
	if _, fits := decodeWithin(t, Avro(b.ours), body); fits {
		b.check(t, body)
	}
}

// decodeWithin decodes a body with a small limit, and checks what that allocates. It reports
// whether the limit is kept.
func decodeWithin(t *testing.T, e Encoding, body []byte) ([]byte, bool) {
	t.Helper()
	const limit = 64 << 10
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	before := sample[0].Value.Uint64()
	out, err := e.json(t.Context(), body, "", limit)
	metrics.Read(sample)
	// In all, and what is allocated beside: the memory at any time is less.
	if took := sample[0].Value.Uint64() - before; took > uint64(12*(len(body)+limit)+4<<20) {
		t.Fatalf("a body of %d bytes takes %d bytes", len(body), took)
	}
	if len(out) > limit {
		t.Fatalf("%d bytes", len(out))
	}
	return out, err == nil || !strings.Contains(err.Error(), "the limit (max_size)")
}

// TestAvroAsLibrary: generated bodies of generated schemas become what the library makes of them.
func TestAvroAsLibrary(t *testing.T) {
	count := 20_000
	if text := os.Getenv("SLUICE_AVRO_BODIES"); text != "" {
		var err error
		if count, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	bodies, decoded, resolved := 0, 0, 0
	for seed := uint64(1); bodies < count; seed++ {
		g := &avroMade{Rand: rand.New(rand.NewPCG(seed, 1))}
		made := g.aType(4)
		writer, ok := parseBoth(t, made.text())
		if !ok {
			continue
		}
		compared := []bothAvro{writer}
		if reader, ok := parseBoth(t, g.reader(made, map[*madeType]*madeType{}).text()); ok {
			if both, ok := reader.resolve(t, writer); ok {
				compared = append(compared, both)
				resolved++
			}
		}
		for range 20 {
			g.spent = 0
			body := g.body(nil, made, 0)
			if g.oneIn(3) {
				body = g.damage(body)
			}
			for _, b := range compared {
				if b.check(t, body) {
					decoded++
				}
				bodies++
			}
		}
	}
	t.Logf("%d bodies, of which %d have JSON; %d schemas were read as another", bodies, decoded, resolved)
	if decoded < bodies/3 || resolved < bodies/200 {
		t.Error("most of what is generated is refused")
	}
}
