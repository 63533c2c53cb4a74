package formats

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"runtime/metrics"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/sluice-go/sluice"
)

// gzipped compresses with another implementation than the one that decompresses.
func gzipped(data string) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	w.Write([]byte(data))
	w.Close()
	return b.Bytes()
}

// zlibbed and deflated compress with a header and without one.
func zlibbed(data string) []byte {
	var b bytes.Buffer
	w := zlib.NewWriter(&b)
	w.Write([]byte(data))
	w.Close()
	return b.Bytes()
}

func deflated(data string) []byte {
	var b bytes.Buffer
	w, err := flate.NewWriter(&b, flate.BestSpeed)
	if err != nil {
		panic(err)
	}
	w.Write([]byte(data))
	w.Close()
	return b.Bytes()
}

// zstandard compresses as a sender does that knows the size, or as one that compresses a stream.
func zstandard(t testing.TB, data string, stream bool) []byte {
	var b bytes.Buffer
	w, err := zstd.NewWriter(&b, zstd.WithWindowSize(leastWindow))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if !stream {
		return w.EncodeAll([]byte(data), nil)
	}
	for part := range strings.SplitAfterSeq(data, "}") {
		w.Write([]byte(part))
		w.Flush()
	}
	w.Close()
	return b.Bytes()
}

func TestDecompress(t *testing.T) {
	const limit = 1000
	body := `{"a":1}` + strings.Repeat(" ", limit-7)
	declares := func(value any) map[string]any { return map[string]any{"Content-Encoding": value, "a": "b"} }
	damaged := gzipped(body)
	damaged[len(damaged)-8] ^= 1 // of the checksum
	zlibDamaged := zlibbed(body)
	zlibDamaged[len(zlibDamaged)-1] ^= 1 // of the checksum
	zstdDamaged := zstandard(t, body, false)
	zstdDamaged[len(zstdDamaged)-1] ^= 1
	for name, c := range map[string]struct {
		compression Compression
		body        []byte
		properties  map[string]any
		want        string // an error, if it is not body
	}{
		"gzip":                  {Gzip, gzipped(body), nil, body},
		"gzip, two members":     {Gzip, append(gzipped(body[:7]), gzipped(body[7:])...), nil, body},
		"gzip by setting":       {Gzip, gzipped(body), declares("identity"), body},
		"gzip, one byte more":   {Gzip, gzipped(body + " "), nil, "decompress the body: gzip: it has more than 1000 bytes then, the limit (max_size)"},
		"gzip bomb":             {Gzip, gzipped(strings.Repeat(" ", 64<<20)), nil, "decompress the body: gzip: it has more than 1000 bytes then, the limit (max_size)"},
		"no gzip":               {Gzip, []byte(body), nil, "decompress the body: gzip: it is not gzip"},
		"gzip of nothing":       {Gzip, nil, nil, "decompress the body: gzip: it is not gzip"},
		"gzip, cut off":         {Gzip, gzipped(body)[:20], nil, "decompress the body: gzip: it is cut off"},
		"gzip, damaged":         {Gzip, damaged, nil, "decompress the body: gzip: it is damaged: invalid checksum"},
		"gzip, and more":        {Gzip, append(gzipped(body), "more and more"...), nil, "decompress the body: gzip: it is not gzip"},
		"zstd":                  {Zstd, zstandard(t, body, false), nil, body},
		"zstd of a stream":      {Zstd, zstandard(t, body, true), nil, body},
		"zstd, one byte more":   {Zstd, zstandard(t, body+" ", false), nil, "decompress the body: zstd: it has more than 1000 bytes then, the limit (max_size)"},
		"zstd bomb":             {Zstd, zstandard(t, strings.Repeat(" ", 64<<20), true), nil, "decompress the body: zstd: it has more than 1000 bytes then, the limit (max_size)"},
		"no zstd":               {Zstd, []byte(body), nil, "decompress the body: zstd: it is not zstd"},
		"zstd of nothing":       {Zstd, nil, nil, "decompress the body: zstd: it is not zstd"},
		"zstd, cut off":         {Zstd, zstandard(t, body, true)[:12], nil, "decompress the body: zstd: it is cut off"},
		"zstd, damaged":         {Zstd, zstdDamaged, nil, "decompress the body: zstd: it is damaged: CRC check failed"},
		"deflate":               {Deflate, zlibbed(body), nil, body},
		"deflate, no header":    {Deflate, deflated(body), nil, body},
		"deflate, one more":     {Deflate, deflated(body + " "), nil, "decompress the body: deflate: it has more than 1000 bytes then, the limit (max_size)"},
		"deflate bomb":          {Deflate, zlibbed(strings.Repeat(" ", 64<<20)), nil, "decompress the body: deflate: it has more than 1000 bytes then, the limit (max_size)"},
		"deflate, cut off":      {Deflate, deflated(body)[:10], nil, "decompress the body: deflate: it is cut off"},
		"deflate of nothing":    {Deflate, nil, nil, "decompress the body: deflate: it is cut off"},
		"deflate, damaged":      {Deflate, zlibDamaged, nil, "decompress the body: deflate: it is damaged: zlib: invalid checksum"},
		"deflate, and more":     {Deflate, append(deflated(body), "more"...), nil, "decompress the body: deflate: it is not deflate: bytes follow its end"},
		"no deflate":            {Deflate, []byte(body), nil, "decompress the body: deflate: it is not deflate: bytes follow its end"},
		"declared deflate":      {Auto, zlibbed(body), declares("deflate"), body},
		"declared a charset":    {Auto, []byte(body), declares("utf-8"), body},
		"declared UTF-16":       {Auto, []byte(body), declares("UTF-16LE"), body},
		"declared gzip":         {Auto, gzipped(body), declares("gzip"), body},
		"declared GZIP":         {Auto, gzipped(body), declares(" GZIP "), body},
		"declared x-gzip":       {Auto, gzipped(body), declares([]byte("x-gzip")), body},
		"declared zstd":         {Auto, zstandard(t, body, false), declares("zstd"), body},
		"declared identity":     {Auto, []byte(body), declares("identity"), body},
		"declared null":         {Auto, []byte(body), declares(nil), body},
		"declared nothing":      {Auto, []byte(body), map[string]any{"a": "b"}, body},
		"declared and not":      {Auto, []byte(body), declares("gzip"), "decompress the body: gzip: it is not gzip"},
		"declared br":           {Auto, []byte(body), declares("br"), `decompress the body: the property content-encoding is "br": known are gzip, deflate, zstd, identity, and as a charset utf-8, utf-16, utf-32 and us-ascii`},
		"declared a number":     {Auto, []byte(body), declares(int64(7)), "decompress the body: the property content-encoding is a int64, not a text"},
		"not compressed at all": {none, []byte(body), declares("gzip"), body},
	} {
		e := &sluice.Event{Sequence: 7, Key: "k", ContentType: "application/json", Body: c.body, Properties: c.properties,
			Headers: []sluice.Header{{Name: "content-encoding"}, {Name: "a"}}}
		original := bytes.Clone(c.body)
		out, err := New(&Config{Compression: c.compression, MaxSize: limit}).Event(t.Context(), e)
		if !bytes.Equal(e.Body, original) || len(e.Headers) != 2 || c.properties["Content-Encoding"] != nil && e.Properties["Content-Encoding"] == nil {
			t.Errorf("%s: the event itself was changed", name)
		}
		if err != nil {
			if err.Error() != c.want {
				t.Errorf("%s: got  %v\nwant %s", name, err, c.want)
			}
			continue
		}
		if string(out.Body) != c.want || out.Sequence != 7 || out.Key != "k" || out.ContentType != "application/json" {
			t.Errorf("%s: got %+v", name, out)
		}
		if same := out == e; same != bytes.Equal(c.body, out.Body) {
			t.Errorf("%s: the same event: %v", name, same)
		} else if _, left := out.Properties["Content-Encoding"]; !same && (left || c.properties != nil && out.Properties["a"] != "b" || len(out.Headers) != 1 || out.Headers[0].Name != "a") {
			t.Errorf("%s: properties %v, headers %v", name, out.Properties, out.Headers)
		}
	}
}

// TestNullBody: a null value of Kafka stays one; an event of Event Hubs without a body has an empty
// one.
func TestNullBody(t *testing.T) {
	e := &sluice.Event{}
	if out, err := New(&Config{Compression: Gzip, NullBodies: true}).Event(t.Context(), e); out != e || err != nil {
		t.Errorf("null: %v, %v", out, err)
	}
	if _, err := New(&Config{Compression: Gzip}).Event(t.Context(), e); err == nil {
		t.Error("an empty body was decompressed")
	}
}

// TestContentTypeOfCompression: a content type that names the compression is not that of the
// decompressed body.
func TestContentTypeOfCompression(t *testing.T) {
	e := &sluice.Event{Body: gzipped("{}"), ContentType: "application/x-gzip", Properties: map[string]any{"content-type": "application/x-gzip"}}
	out, err := New(&Config{Compression: Gzip}).Event(t.Context(), e)
	if err != nil || out.ContentType != "" || len(out.Properties) != 0 {
		t.Errorf("%+v, %v", out, err)
	}
}

// FuzzDecompress: no body makes the decoder fail otherwise than with an error, or exceed the limit.
func FuzzDecompress(f *testing.F) {
	f.Add(gzipped("abc"))
	f.Add(zlibbed("abc"))
	f.Add(deflated("abc"))
	f.Add(zstandard(f, "abc", false))
	f.Add(zstandard(f, strings.Repeat("{}", 500), true))
	const limit = 4096
	decoders := []*Decoder{New(&Config{Compression: Gzip, MaxSize: limit}), New(&Config{Compression: Zstd, MaxSize: limit}), New(&Config{Compression: Deflate, MaxSize: limit})}
	f.Fuzz(func(t *testing.T, body []byte) {
		sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
		for _, d := range decoders {
			metrics.Read(sample)
			before := sample[0].Value.Uint64()
			out, err := d.Event(t.Context(), &sluice.Event{Body: body})
			metrics.Read(sample)
			if took := sample[0].Value.Uint64() - before; took > 4*leastWindow+8<<20 { // the window, and the decoder itself
				t.Errorf("a body of %d bytes takes %d bytes", len(body), took)
			}
			if err == nil && len(out.Body) > limit {
				t.Errorf("%d bytes", len(out.Body))
			}
			if err != nil && (strings.Contains(err.Error(), "\n") || len(err.Error()) > 300) {
				t.Errorf("%v", err)
			}
		}
	})
}
