package kafka

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/driver"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// testBatch describes a record batch of a test.
type testBatch struct {
	first      int64
	epoch      int32
	attributes int16
	producer   int64
	records    []kgo.Record // Offset is within the batch
	claim      int32        // number of records, if not theirs
	delta      int32        // of the last number, if not theirs
}

// encode returns the batch as a broker sends it.
func (b testBatch) encode() []byte {
	out := kmsg.RecordBatch{
		FirstOffset: b.first, PartitionLeaderEpoch: b.epoch, Magic: 2, Attributes: b.attributes,
		LastOffsetDelta: b.delta, FirstTimestamp: 1000, MaxTimestamp: 2000, ProducerID: b.producer, NumRecords: b.claim,
	}
	var records []byte
	for i := range b.records {
		r := &b.records[i]
		one := kmsg.Record{TimestampDelta64: int64(i), OffsetDelta: int32(r.Offset), Key: r.Key, Value: r.Value}
		for _, h := range r.Headers {
			one.Headers = append(one.Headers, kmsg.Header{Key: h.Key, Value: h.Value})
		}
		one.Length = int32(len(one.AppendTo(nil)) - 1) // a length of 0 takes one byte
		records = one.AppendTo(records)
		out.LastOffsetDelta = max(out.LastOffsetDelta, int32(r.Offset))
	}
	if b.claim == 0 {
		out.NumRecords = int32(len(b.records))
	}
	if codec := b.attributes & 7; codec != 0 {
		records = compress(codec, records)
	}
	out.Records = records
	data := out.AppendTo(nil)
	binary.BigEndian.PutUint32(data[8:], uint32(len(data)-12))
	binary.BigEndian.PutUint32(data[17:], crc32.Checksum(data[21:], castagnoli))
	return data
}

func compress(codec int16, data []byte) []byte {
	by := map[int16]kgo.CompressionCodec{codecGzip: kgo.GzipCompression(), codecSnappy: kgo.SnappyCompression(), codecLZ4: kgo.Lz4Compression(), codecZstd: kgo.ZstdCompression()}
	c, err := kgo.DefaultCompressor(by[codec])
	if err != nil {
		panic(err)
	}
	out, _ := c.Compress(new(bytes.Buffer), data)
	return bytes.Clone(out)
}

// decodeAll decodes an answer to a fetch of a compacted topic after a position, as a reader does.
func decodeAll(p *kmsg.FetchResponseTopicPartition, after int64, limit int) ([]*driver.Event, *decoder, error) {
	return decodeAs(true, p, after, limit)
}

func decodeAs(compacted bool, p *kmsg.FetchResponseTopicPartition, after int64, limit int) ([]*driver.Event, *decoder, error) {
	f := newFetched(p, 0, after+1, history{-1, -1})
	d := &decoder{converter: converter{partition: "0"}, compacted: compacted, decoded: after, counted: after, returned: after, past: history{-1, -1}}
	var all []*driver.Event
	for _, c := range f.chunks {
		for d.chunk = c; d.chunk != nil; {
			more, err := d.decode(7, limit)
			all = append(all, d.pending...)
			d.pending, d.bytes = nil, 0
			if err != nil {
				return all, d, err
			}
			if !more {
				d.chunk = nil
			}
		}
	}
	if d.decoded != f.next-1 || d.past != f.past {
		return nil, d, fmt.Errorf("decoded up to %d of %v, fetched up to %d of %v", d.decoded, d.past, f.next-1, f.past)
	}
	accounted := int64(len(all)) + d.passed.Total()
	for _, e := range all {
		accounted += e.Passed.Total()
	}
	if accounted != d.decoded-after && d.decoded >= after {
		return nil, d, fmt.Errorf("%d of the numbers %d to %d are events, or were passed for a reason", accounted, after+1, d.decoded)
	}
	return all, d, nil
}

// theirs decodes the same with franz-go.
func theirs(p *kmsg.FetchResponseTopicPartition, after int64, committed bool) ([]*kgo.Record, int64, error) {
	o := kgo.ProcessFetchPartitionOpts{Offset: after + 1}
	if committed {
		o.IsolationLevel = kgo.ReadCommitted()
	}
	got, next := kgo.ProcessFetchPartition(o, p, kgo.DefaultDecompressor(), nil)
	return got.Records, next, got.Err
}

// wantSame compares events with franz-go's records.
func wantSame(t *testing.T, events []*driver.Event, records []*kgo.Record) {
	t.Helper()
	if len(events) != len(records) {
		t.Fatalf("%d events, %d records", len(events), len(records))
	}
	for i, e := range events {
		r := records[i]
		var headers []driver.Header
		for _, h := range r.Headers {
			headers = append(headers, driver.Header{Name: h.Key, Value: h.Value})
		}
		if e.Sequence != r.Offset || e.Key != string(r.Key) || e.EmptyKey != (r.Key != nil && len(r.Key) == 0) ||
			!bytes.Equal(e.Body, r.Value) || (e.Body == nil) != (r.Value == nil) || !reflect.DeepEqual(e.Headers, headers) ||
			!e.Enqueued.Equal(r.Timestamp) || e.Created.IsZero() != (r.Attrs.TimestampType() == 1) {
			t.Errorf("event %d: %+v\nrecord %+v", i, e, r)
		}
	}
}

// randomRecords are records with gaps, null values, empty ones, keys and headers.
func randomRecords(rng *rand.Rand, n int) (records []kgo.Record) {
	text := func(most int) []byte {
		switch rng.IntN(8) {
		case 0:
			return nil
		case 1:
			return []byte{}
		}
		return []byte(strings.Repeat(string(rune('a'+rng.IntN(26))), 1+rng.IntN(most)))
	}
	number := int64(0)
	for range n {
		r := kgo.Record{Offset: number, Key: text(20), Value: text(500)}
		for range rng.IntN(3) {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: string(text(5)), Value: text(30)})
		}
		records = append(records, r)
		number += 1 + int64(rng.IntN(2)*rng.IntN(3))
	}
	return records
}

// What any broker may send is decoded as franz-go decodes it.
func TestDecode(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range 300 {
		var data []byte
		first := int64(rng.IntN(1000))
		start := first
		producers := map[int64]int64{} // producers with an open transaction, and where it began
		var aborted []kmsg.FetchResponseTopicPartitionAbortedTransaction
		for range 1 + rng.IntN(10) {
			b := testBatch{first: first, epoch: 3, attributes: int16(rng.IntN(5)), records: randomRecords(rng, 1+rng.IntN(30)), producer: int64(rng.IntN(3))}
			b.attributes |= int16(rng.IntN(2)) << 3
			began, open := producers[b.producer]
			switch {
			case rng.IntN(4) == 0:
				b.records = nil // compacted away
				b.delta = int32(rng.IntN(5))
			case rng.IntN(2) == 0 && open:
				kind := byte(rng.IntN(2))
				b.attributes = 0x30
				b.records = []kgo.Record{{Key: []byte{0, 0, 0, kind}, Value: make([]byte, 6)}}
				if delete(producers, b.producer); kind == markerAbort {
					aborted = append(aborted, kmsg.FetchResponseTopicPartitionAbortedTransaction{ProducerID: b.producer, FirstOffset: began})
				}
			case rng.IntN(2) == 0:
				b.attributes |= 0x10
				if !open {
					producers[b.producer] = first
				}
			case open:
				continue // a producer sends nothing else meanwhile
			}
			data = append(data, b.encode()...)
			parsed, _, err := nextBatch(b.encode())
			if err != nil {
				t.Fatal(err)
			}
			first = parsed.last + 1 + int64(rng.IntN(2))
		}
		// What is still open is not within the last stable offset; here it counts as committed.
		rng.Shuffle(len(aborted), func(i, j int) { aborted[i], aborted[j] = aborted[j], aborted[i] })
		p := &kmsg.FetchResponseTopicPartition{RecordBatches: data, AbortedTransactions: aborted}
		after := start - 1 + int64(rng.IntN(20))
		events, d, err := decodeAll(p, after, 1<<20)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		records, next, err := theirs(p, after, true)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		wantSame(t, events, records)
		if d.decoded != max(next-1, after) {
			t.Errorf("round %d: decoded up to %d, franz-go up to %d", round, d.decoded, next-1)
		}
		// Cut off anywhere, the complete batches before are decoded.
		p.RecordBatches = data[:rng.IntN(len(data))]
		cut, _, err := decodeAll(p, after, 1<<20)
		if err != nil || len(cut) > len(events) {
			t.Fatalf("round %d: cut off: %d events, %v", round, len(cut), err)
		}
		for i := range cut {
			if !reflect.DeepEqual(cut[i], events[i]) {
				t.Errorf("round %d: cut off: event %+v, want %+v", round, cut[i], events[i])
			}
		}
	}
}

// What cannot be decoded is named, with the last number of its batch, and what comes before is
// returned.
func TestUndecodable(t *testing.T) {
	good := testBatch{first: 10, records: []kgo.Record{{Value: []byte("a")}, {Offset: 1, Value: []byte("b")}}}
	bad := testBatch{first: 20, records: []kgo.Record{{Value: []byte("c")}, {Offset: 4, Value: []byte("d")}}}
	damaged := func(at int, value byte, sum bool) []byte {
		data := bytes.Clone(bad.encode())
		data[at] = value
		if sum {
			binary.BigEndian.PutUint32(data[17:], crc32.Checksum(data[21:], castagnoli))
		}
		return data
	}
	bomb := testBatch{first: 20, attributes: codecZstd, records: []kgo.Record{{Value: make([]byte, 10_000)}, {Offset: 4}}}
	for name, c := range map[string]struct {
		data []byte
		last int64
		why  string
	}{
		"checksum":       {damaged(70, 'x', false), 24, "the batch of 20 to 24: its checksum is wrong"},
		"format":         {damaged(16, 1, false), 20, "the batch of 20 to 20: message format 1, which Kafka before 0.11 wrote"},
		"codec":          {damaged(22, 7, true), 24, "the batch of 20 to 24: it cannot be decompressed: unknown compression type 7"},
		"gzip":           {damaged(22, codecGzip, true), 24, "the batch of 20 to 24: it cannot be decompressed: gzip: invalid header"},
		"too many":       {damaged(60, 200, true), 24, "the batch of 20 to 24: a record does not fit its length"},
		"length":         {damaged(61, 200, true), 24, "the batch of 20 to 24: a record does not fit its length"},
		"bomb":           {bomb.encode(), 24, "the batch of 20 to 24: it decompresses to more than 1000 bytes, see SourceConfig.MaxBatchBytes"},
		"negative count": {damaged(57, 0x80, true), 24, "the batch of 20 to 24: first number 20, last 4 more, -2147483646 records"},
	} {
		t.Run(name, func(t *testing.T) {
			events, d, err := decodeAll(&kmsg.FetchResponseTopicPartition{RecordBatches: append(good.encode(), c.data...)}, 9, 1000)
			got, found := errors.AsType[*driver.UndecodableError](err)
			if want := (driver.UndecodableError{Partition: "0", Sequence: c.last, Reason: c.why}); !found || *got != want {
				t.Errorf("got %v, want %v", err, &want)
			}
			if len(events) != 2 || d.decoded != 11 {
				t.Errorf("%d events up to %d, want those of the batch before, up to 11", len(events), d.decoded)
			}
		})
	}
}

// An event of an earlier leader epoch than the one before it is of another log: a reader does not
// go on with it.
func TestEpochsRise(t *testing.T) {
	of := func(first int64, epochs ...int32) (data []byte) {
		for i, epoch := range epochs {
			data = append(data, testBatch{first: first + int64(i), epoch: epoch, records: []kgo.Record{{Value: []byte("a")}}}.encode()...)
		}
		return data
	}
	for _, c := range []struct {
		epochs []int32
		events int
	}{{[]int32{4, 4, 5, 7}, 4}, {[]int32{4, 5, 4, 5}, 2}, {[]int32{-1, 5, 4}, 2}, {[]int32{5, -1, 4}, 3}} {
		events, _, err := decodeAll(&kmsg.FetchResponseTopicPartition{RecordBatches: of(10, c.epochs...)}, 9, 1000)
		if len(events) != c.events || (err == nil) != (c.events == len(c.epochs)) {
			t.Errorf("epochs %v: %d events, %v; want %d", c.epochs, len(events), err, c.events)
		}
	}
}

// Snappy of Java's producers has a format of its own.
func TestJavaSnappy(t *testing.T) {
	var data []byte
	data = append(data, javaSnappy...)
	data = append(data, 0, 0, 0, 1, 0, 0, 0, 1)
	for _, text := range []string{"one ", "two"} {
		block := compress(codecSnappy, []byte(text))
		if bytes.HasPrefix(block, javaSnappy) {
			block = block[20:]
		}
		data = binary.BigEndian.AppendUint32(data, uint32(len(block)))
		data = append(data, block...)
	}
	if got, err := decompress(nil, data, codecSnappy, 7); err != nil || string(got) != "one two" {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := decompress(nil, data, codecSnappy, 6); !errors.Is(err, errTooLarge) {
		t.Errorf("beyond the limit: %v", err)
	}
	for n := range data {
		if got, err := decompress(nil, data[:n], codecSnappy, 7); err == nil && string(got) == "one two" {
			t.Errorf("the first %d bytes of %d are enough", n, len(data))
		}
	}
}

// Few bytes stay in memory of what an event was fetched with: its chunk, or a response of which
// much is the partition's.
func TestChunks(t *testing.T) {
	var data []byte
	for i := range 1000 {
		data = append(data, testBatch{first: int64(i), records: []kgo.Record{{Value: make([]byte, 1000)}}}.encode()...)
	}
	f := newFetched(&kmsg.FetchResponseTopicPartition{RecordBatches: append(data, data[:100]...)}, 1<<30, 0, history{-1, -1})
	batch := len(data) / 1000
	if f.next != 1000 || f.size != len(data) || f.cutOff != batch {
		t.Errorf("fetched up to %d, %d bytes, a batch of %d cut off; want 1000, %d, %d", f.next, f.size, f.cutOff, len(data), batch)
	}
	for _, c := range f.chunks {
		if len(c.data) > chunkSize+batch || &c.data[0] == &data[0] || cap(c.data) > len(c.data)+len(c.data)/4 {
			t.Errorf("a chunk of %d bytes in memory for %d", len(c.data), cap(c.data))
		}
	}
}

// A broker cuts off the batch that does not fit a fetch, and sends it again with the next one. Of
// what is fetched that is a small part.
func TestCutOff(t *testing.T) {
	const largest, small = 1_500_000, 10_000
	buffer := make([]byte, 4<<20)
	for name, sizes := range map[string][]int{ // of batches, again and again
		"small":                       {16_000},
		"a large and a small one":     {1_000_000, 285_000},
		"large":                       {700_000},
		"very large":                  {largest},
		"large ones, then small ones": append(slices.Repeat([]int{900_000, 400_000}, 100), slices.Repeat([]int{small}, 10_000)...),
	} {
		t.Run(name, func(t *testing.T) {
			r := &reader{source: &Source{cfg: SourceConfig{PrefetchBytes: 4 << 20}}}
			var fetched, whole int
			for r.next < int64(max(1000, len(sizes)-400)) {
				asked := int(r.ask().PartitionMaxBytes)
				for at, i := 0, int(r.next); at < asked; i++ {
					size := sizes[i%len(sizes)]
					putHeader(buffer[at:], int64(i), size)
					at += size
				}
				r.answer(&kmsg.FetchResponseTopicPartition{RecordBatches: buffer[:asked], LastStableOffset: 1 << 40}, asked, true)
				fetched, whole = fetched+asked, whole+r.buffered
				r.chunks, r.buffered = nil, 0
			}
			if part := 1 - float64(whole)/float64(fetched); part > 0.12 {
				t.Errorf("%.2f of what was fetched was cut off", part)
			}
			if asked := r.ask().PartitionMaxBytes; sizes[len(sizes)-1] == small && asked != 2<<20 {
				t.Errorf("small batches: a fetch of %d bytes", asked)
			}
		})
	}
}

// putHeader writes the header of a batch of a size, as far as a fetcher reads it.
func putHeader(data []byte, first int64, size int) {
	clear(data[:batchHeader])
	binary.BigEndian.PutUint64(data, uint64(first))
	binary.BigEndian.PutUint32(data[8:], uint32(size-batchPrefix))
	data[16] = 2
}

// A response of which much is the partition's is not copied.
func TestSharedResponse(t *testing.T) {
	data := testBatch{records: []kgo.Record{{Value: make([]byte, 2*chunkSize)}}}.encode()
	for response, want := range map[int]bool{len(data): true, 8 * len(data): true, 8*len(data) + 1: false} {
		f := newFetched(&kmsg.FetchResponseTopicPartition{RecordBatches: data}, response, 0, history{-1, -1})
		if shares := &f.chunks[0].data[0] == &data[0]; shares != want {
			t.Errorf("of a response of %d bytes %d are the partition's; shared: %v, want %v", response, len(data), shares, want)
		}
	}
}

// FuzzDecode decodes whatever a broker sends: no panic, no memory beyond the limit, and events in
// order.
func FuzzDecode(f *testing.F) {
	rng := rand.New(rand.NewPCG(3, 4))
	for codec := range int16(5) {
		f.Add(testBatch{first: 5, epoch: 1, attributes: codec, records: randomRecords(rng, 5)}.encode(), int64(3))
	}
	f.Add(testBatch{first: 5, attributes: 0x30, records: []kgo.Record{{Key: []byte{0, 0, 0, 0}}}}.encode(), int64(-1))
	f.Fuzz(func(t *testing.T, data []byte, after int64) {
		if len(data) > 61 { // most changes would fail at the checksum
			data = bytes.Clone(data)
			if n := 12 + int64(int32(binary.BigEndian.Uint32(data[8:]))); n > 61 && n <= int64(len(data)) {
				binary.BigEndian.PutUint32(data[17:], crc32.Checksum(data[21:n], castagnoli))
			}
		}
		after = max(-1, min(after, 1<<40))
		events, _, err := decodeAll(&kmsg.FetchResponseTopicPartition{RecordBatches: data}, after, 1<<20)
		if err != nil && !errors.Is(err, driver.ErrUndecodable) && !strings.Contains(err.Error(), "leader epoch") {
			t.Errorf("an error of another kind: %v", err)
		}
		for _, e := range events {
			if e.Sequence <= after {
				t.Errorf("event %d after %d", e.Sequence, after)
			}
			after = e.Sequence
			_ = e.Size()
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	for _, codec := range []int16{codecNone, codecLZ4, codecZstd} {
		b.Run(fmt.Sprint("codec ", codec), func(b *testing.B) {
			var records []kgo.Record
			for i := range 1000 {
				records = append(records, kgo.Record{Offset: int64(i), Key: fmt.Append(nil, "key", i), Value: []byte(strings.Repeat(fmt.Sprintf("%d:%x,", i, i*i), 60))})
			}
			p := &kmsg.FetchResponseTopicPartition{RecordBatches: testBatch{attributes: codec, records: records, epoch: 1}.encode()}
			b.ReportAllocs()
			began := time.Now()
			for b.Loop() {
				events, _, err := decodeAll(p, -1, 1<<30)
				if err != nil || len(events) != 1000 {
					b.Fatal(len(events), err)
				}
			}
			b.ReportMetric(float64(time.Since(began).Nanoseconds())/float64(b.N)/1000, "ns/event")
		})
	}
}
