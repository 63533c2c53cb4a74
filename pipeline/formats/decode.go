// Package formats makes JSON of the bodies of events: it decompresses them and reads Avro and
// Protobuf, with the schemas of a registry or of a file. Pipelines of YAML use it, and so do
// handlers in Go by [Decoded] and [DecodedRecords].
//
// What a body can take of memory is bounded, and charged to the budget of sluice.Config.Memory.
//
// An error that is marked as an outage ([driver.Outage]) is that of a schema registry which does
// not answer. Every other error is about the event itself: it does not decode now, and never will.
package formats

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/sluice-go/sluice"
)

const defaultMaxSize = 8 << 20

// Config says how bodies are encoded. The zero value is plain JSON.
type Config struct {
	Compression Compression // default: none
	Encoding    Encoding    // nil: JSON, which is not looked at
	Envelope    Envelope    // around the value, which is JSON then; default: none
	// MaxSize is how many bytes a body may have after it is decompressed, and after it became
	// JSON. An event with a larger one does not decode. Default: 8 MiB.
	MaxSize int
	// NullBodies: the log has null values, which stay null. Otherwise no body is an empty body.
	NullBodies bool
}

// Encoding makes JSON of decompressed bodies. Implementations are safe for concurrent use.
type Encoding interface {
	// json returns a body as JSON of at most limit bytes. contentType is that of the event.
	json(ctx context.Context, body []byte, contentType string, limit int) ([]byte, error)
	// check checks that what is needed to decode can be reached.
	check(ctx context.Context) error
}

// Decoder decodes events. It is safe for concurrent use. nil is a decoder of plain JSON.
type Decoder struct {
	cfg     Config
	zstd    func() (*zstd.Decoder, error)
	schemas connectSchemas
}

// New returns a decoder. A nil cfg is plain JSON.
func New(cfg *Config) *Decoder {
	var c Config
	if cfg != nil {
		c = *cfg
	}
	if c.MaxSize == 0 {
		c.MaxSize = defaultMaxSize
	}
	return &Decoder{cfg: c, zstd: sync.OnceValues(func() (*zstd.Decoder, error) { return newZstd(c.MaxSize) })}
}

// Check checks that the schema registry, if there is one, can be reached and grants access.
func (d *Decoder) Check(ctx context.Context) error {
	if d.cfg.Encoding == nil {
		return nil
	}
	return d.cfg.Encoding.check(ctx)
}

// Event returns a copy of the event with the decoded body, or e itself if there is nothing to
// decode. What described the body as it was sent is not in the copy: the property and header
// content-encoding, and, if the body became JSON, the content type, which is application/json. The
// charge of ctx grows by what is allocated, before that ([memory.Grow]).
func (d *Decoder) Event(ctx context.Context, e *sluice.Event) (*sluice.Event, error) {
	if d == nil || e.Body == nil && d.cfg.NullBodies {
		return e, nil
	}
	body, compression, err := d.decompress(ctx, e)
	if err != nil {
		return nil, fmt.Errorf("decompress the body: %w", err)
	}
	if compression == none && d.cfg.Encoding == nil && d.cfg.Envelope == noEnvelope {
		return e, nil
	}
	out := *e
	out.Body = body
	if compression != none {
		drop(&out, contentEncoding)
		if strings.HasSuffix(strings.ToLower(out.ContentType), string(compression)) { // application/gzip
			drop(&out, contentType)
		}
	}
	if d.cfg.Encoding == nil {
		return &out, d.unwrap(ctx, &out)
	}
	out.Body, err = d.bounded(ctx, 8*len(body)+leastJSON, 2, func(limit int) ([]byte, error) {
		return d.cfg.Encoding.json(ctx, body, e.ContentType, limit)
	})
	if err != nil {
		return nil, fmt.Errorf("decode the body: %w", err)
	}
	drop(&out, contentType)
	out.ContentType = "application/json"
	return &out, d.unwrap(ctx, &out)
}

// unwrap makes the body of a copy of an event the value in its envelope.
func (d *Decoder) unwrap(ctx context.Context, e *sluice.Event) error {
	if d.cfg.Envelope == noEnvelope {
		return nil
	}
	body, err := d.bounded(ctx, len(e.Body)+leastJSON, 2, func(limit int) ([]byte, error) { return d.open(e.Body, limit) })
	if err != nil {
		return fmt.Errorf("read the %s envelope: %w", d.cfg.Envelope, err)
	}
	e.Body = fitted(body)
	return nil
}

// leastJSON is the size in bytes that JSON is expected to have at least: defaults make it of no
// bytes.
const leastJSON = 4 << 10

// MostMemory returns how many bytes [Decoder.Event] takes at most for one event.
func (d *Decoder) MostMemory() int64 {
	if d == nil {
		return 0
	}
	return 3 * int64(d.cfg.MaxSize) // decompressed, and JSON that is copied when it grows
}

// Properties and headers that describe a body.
const (
	contentEncoding = "content-encoding"
	contentType     = "content-type"
)

// drop removes a property and a header from a copy of an event, whatever their case.
func drop(e *sluice.Event, name string) {
	if name == contentType {
		e.ContentType = ""
	}
	for key := range e.Properties {
		if strings.EqualFold(key, name) {
			e.Properties = maps.Clone(e.Properties)
			maps.DeleteFunc(e.Properties, func(key string, _ any) bool { return strings.EqualFold(key, name) })
			break
		}
	}
	is := func(h sluice.Header) bool { return strings.EqualFold(h.Name, name) }
	if slices.ContainsFunc(e.Headers, is) {
		e.Headers = slices.DeleteFunc(slices.Clone(e.Headers), is)
	}
}
