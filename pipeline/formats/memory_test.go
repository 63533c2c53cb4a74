package formats

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/proof/need"
)

// memoryOf returns the largest memory that live objects had while f ran, and what it allocated in
// all.
func memoryOf(f func()) (peak, total uint64) {
	defer debug.SetGCPercent(debug.SetGCPercent(10)) // so that garbage hardly counts
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/gc/heap/allocs:bytes"}}
	runtime.GC()
	metrics.Read(sample)
	before, allocated := sample[0].Value.Uint64(), sample[1].Value.Uint64()
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		sample := sample[:1:1]
		for {
			metrics.Read(sample)
			peak = max(peak, sample[0].Value.Uint64())
			select {
			case <-stop:
				return
			default:
				time.Sleep(50 * time.Microsecond)
			}
		}
	}()
	f()
	close(stop)
	<-stopped
	metrics.Read(sample)
	return max(peak, before) - before, sample[1].Value.Uint64() - allocated
}

// worstBody is a body that takes much memory for its size.
type worstBody struct {
	name        string
	encoding    Encoding
	compression Compression
	body        []byte
	refused     bool
}

// worstAvro are bodies in Avro.
func worstAvro(t testing.TB) []worstBody {
	file := func(name string) []byte {
		data, err := os.ReadFile(filepath.Join("testdata", "memory", name))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	schema := func(text string) Encoding { return Avro(mustAvro(t, text)) }
	repeat := func(n int, item string) []byte { return []byte(long(int64(n)) + strings.Repeat(item, n) + long(0)) }
	entries := func(key func(i int) string, n int) []byte {
		var b strings.Builder
		b.WriteString(long(int64(n)))
		for i := range n {
			b.WriteString(textOf(key(i)) + long(0))
		}
		return []byte(b.String() + long(0))
	}
	letters := func(i int) string {
		i = (i*7919 + 13) % (1 << 20) // in no order
		return string([]byte{'a' + byte(i>>16&15), 'a' + byte(i>>12&15), 'a' + byte(i>>8&15), 'a' + byte(i>>4&15), 'a' + byte(i&15)})
	}
	mapOf := `{"type":"map","values":"int"}`
	moved := `{"type":"record","name":"r","fields":[{"name":"next","type":["null","r"]},{"name":"b","type":"string"},{"name":"a","type":"string"}]}`
	deep := strings.Repeat(long(1), 480) + long(0) + textOf(strings.Repeat("x", 4<<20)) + textOf("") + strings.Repeat(textOf("")+textOf(""), 480)
	writer := mustAvro(t, `{"type":"record","name":"r","fields":[{"name":"a","type":{"type":"array","items":{"type":"array","items":"null"}}},{"name":"b","type":"int"}]}`)
	skips, err := mustAvro(t, `{"type":"record","name":"r","fields":[{"name":"b","type":"int"}]}`).resolve(writer)
	if err != nil {
		t.Fatal(err)
	}
	defaults, err := mustAvro(t, `{"type":"array","items":{"type":"record","name":"r","fields":[{"name":"d","type":"string","default":"`+strings.Repeat("d", 1000)+`"}]}}`).
		resolve(mustAvro(t, `{"type":"array","items":{"type":"record","name":"r","fields":[{"name":"x","type":"boolean"}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	nulls := repeat(2<<20, long(4096)+long(0))
	return []worstBody{
		{"empty records", schema(string(file("empty-records.avsc"))), Gzip, file("empty-records.avro.gz"), true},
		{"records of nulls", schema(string(file("nulls.avsc"))), Gzip, file("nulls.avro.gz"), true},
		{"empty arrays", schema(`{"type":"array","items":{"type":"array","items":"null"}}`), none, repeat(8<<20, "\x00"), true},
		{"many nulls", schema(`{"type":"array","items":{"type":"array","items":"null"}}`), none, nulls, true},
		{"numbers", schema(`{"type":"array","items":"int"}`), none, repeat(4<<20-100, "\x00"), false},
		{"keys in no order", schema(mapOf), none, entries(letters, 600_000), false},
		{"one key", schema(mapOf), none, entries(func(int) string { return "" }, 1_600_000), false},
		{"escapes", schema(`"string"`), none, []byte(textOf(strings.Repeat("\x01", 8<<20-10))), true},
		{"separators", schema(`"string"`), none, []byte(textOf(strings.Repeat("\u2028", 2<<20))), true},
		{"bytes", schema(`"bytes"`), none, []byte(textOf(strings.Repeat("\x01", 5<<20))), false},
		{"moved fields", schema(moved), none, []byte(deep), false},
		{"skipped", avroEncoding{skips}, none, append(repeat(8<<20, long(4096)+long(0)), long(1)...), false},
		{"defaults", avroEncoding{defaults}, none, repeat(4<<20, "\x01"), true},
		{"decimals", schema(`{"type":"array","items":{"type":"bytes","logicalType":"decimal","precision":4000,"scale":4000}}`), none, repeat(2000, textOf("\x01")), false},
	}
}

// worstProtobuf are bodies in Protobuf.
func worstProtobuf(t testing.TB) []worstBody {
	s, err := ReadProto(filepath.Join(write(t, map[string]string{"worst.proto": `syntax = "proto3";
package worst;
import "google/protobuf/struct.proto";
import "google/protobuf/timestamp.proto";
message Empty {}
message Point { int32 x = 1; int32 y = 2; }
message Worst {
  repeated Empty a = 1; repeated Empty b = 2; repeated Long enums = 3; repeated bool bools = 4; map<string, Empty> m = 5; repeated string texts = 6;
  google.protobuf.Struct struct = 7; repeated google.protobuf.Timestamp times = 8; Worst next = 9; repeated bytes raws = 10; repeated Point points = 11; map<uint32, bool> n = 12;
}
enum Long { ` + strings.Repeat("L", 500) + ` = 0; }
`}), "worst.proto"), "")
	if err != nil {
		t.Fatal(err)
	}
	encoding, _ := Protobuf(s, "worst.Worst")
	repeat := func(n int, parts ...[]byte) []byte {
		var b []byte
		for _, part := range parts {
			b = append(b, part...)
		}
		return []byte(strings.Repeat(string(b), n))
	}
	var keys, values []byte
	for i := range 400_000 {
		keys = field(keys, 5, field(nil, 1, string([]byte{byte(i*7>>14&127 | 1), byte(i * 7 >> 7 & 127), byte(i * 7 & 127)})))
		values = field(values, 7, field(nil, 1, field(field(nil, 1, "k"), 2, field(nil, 4, i&1))))
	}
	r := rand.New(rand.NewPCG(1, 1))
	var numbers []byte
	for range 500_000 {
		numbers = field(numbers, 12, field(nil, 1, int(r.Uint32())))
	}
	empty := func(n protowire.Number) []byte { return field(nil, n, "") }
	return []worstBody{
		{"empty messages", encoding, none, repeat(2<<20, empty(1)), false},
		{"too many empty messages", encoding, none, repeat(4<<20, empty(1)), true},
		{"two fields in turn", encoding, none, repeat(1<<20, empty(1), empty(2)), false},
		{"names of an enum", encoding, none, field(nil, 3, strings.Repeat("\x00", 4<<20)), true},
		{"booleans", encoding, none, field(nil, 4, strings.Repeat("\x01", 1<<20)), false},
		{"keys in no order", encoding, none, keys, false},
		{"numbers in no order", encoding, none, numbers, true},
		{"one key", encoding, none, values, false},
		{"empty texts", encoding, none, repeat(2<<20, empty(6)), false},
		{"escapes", encoding, none, field(nil, 6, strings.Repeat("\x01", 8<<20-10)), true},
		{"times", encoding, none, repeat(300_000, empty(8)), false},
		{"merged messages", encoding, none, repeat(2<<20, empty(9)), false},
		{"bytes", encoding, none, field(nil, 10, strings.Repeat("\x01", 5<<20)), false},
		{"points", encoding, none, repeat(500_000, field(nil, 11, field(field(nil, 1, 1), 2, 2))), false},
	}
}

// worstCompressed are bodies that expand.
func worstCompressed(t testing.TB) []worstBody {
	zeros := strings.Repeat("\x00", 64<<20)
	window := zstandard(t, "{}", true) // declares the window that every decoder should support
	var big strings.Builder
	w, err := zstd.NewWriter(&big, zstd.WithWindowSize(512<<20), zstd.WithEncoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	for range 4 {
		w.Write([]byte("{}"))
		w.Flush()
	}
	w.Close()
	return []worstBody{
		{"gzip", nil, Gzip, gzipped(zeros), true},
		{"zstd", nil, Zstd, zstandard(t, zeros, false), true},
		{"zstd of a stream", nil, Zstd, zstandard(t, zeros, true), true},
		{"zstd with a window", nil, Zstd, window, false},
		{"zstd with a large window", nil, Zstd, []byte(big.String()), true},
	}
}

// TestMemory: what a body takes is bounded by its size and max_size while it is decoded.
func TestMemory(t *testing.T) {
	need.RealTime(t)
	const (
		limit    = defaultMaxSize
		times    = 4       // of the body and max_size
		constant = 4 << 20 // what is kept for the next body, and what else the process does
	)
	for format, bodies := range map[string][]worstBody{"avro": worstAvro(t), "protobuf": worstProtobuf(t), "compressed": worstCompressed(t)} {
		for _, c := range bodies {
			var out *sluice.Event
			var err error
			d := New(&Config{Encoding: c.encoding, Compression: c.compression, MaxSize: limit})
			began := time.Now()
			peak, total := memoryOf(func() { out, err = d.Event(context.Background(), &sluice.Event{Body: c.body}) })
			allowed := uint64(times*(len(c.body)+limit) + constant)
			t.Logf("%s, %s: %d bytes, peak %.1f MiB, %.2f of what is allowed, %.1f MiB in all, %v: %.150v", format, c.name, len(c.body),
				float64(peak)/(1<<20), float64(peak)/float64(allowed), float64(total)/(1<<20), time.Since(began).Round(time.Millisecond), err)
			if (err != nil) != c.refused {
				t.Errorf("%s, %s: %v", format, c.name, err)
			}
			if err == nil && c.encoding != nil && cap(out.Body) > 2*len(out.Body)+2048 {
				t.Errorf("%s, %s: %d bytes of JSON keep %d", format, c.name, len(out.Body), cap(out.Body))
			}
			if took := time.Since(began); took > 20*time.Second {
				t.Errorf("%s, %s: it takes %v", format, c.name, took)
			}
			if peak > allowed {
				t.Errorf("%s, %s: a body of %d bytes takes %d bytes", format, c.name, len(c.body), peak)
			}
		}
	}
}

// TestMemoryOfSmallLimit: zstd needs its window, whatever max_size is.
func TestMemoryOfSmallLimit(t *testing.T) {
	need.RealTime(t)
	for _, c := range worstCompressed(t) {
		d := New(&Config{Compression: c.compression, MaxSize: 1000})
		peak, _ := memoryOf(func() { d.Event(context.Background(), &sluice.Event{Body: c.body}) })
		t.Logf("%s: peak %.1f MiB", c.name, float64(peak)/(1<<20))
		if peak > 32<<20 {
			t.Errorf("%s: a body of %d bytes takes %d bytes", c.name, len(c.body), peak)
		}
	}
}
