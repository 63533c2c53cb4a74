package records

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/twmb/avro"
	"github.com/twmb/avro/ocf"

	"github.com/sluice-go/sluice/driver"
)

// avroSignature begins an Avro object container file.
const avroSignature = "Obj\x01"

// capture reads the files of Event Hubs Capture.
// https://learn.microsoft.com/azure/event-hubs/explore-captured-avro-files
type capture struct {
	in     *ocf.Reader
	file   string
	number int
}

// captured is an event as Capture writes it.
type captured struct {
	SequenceNumber   int64
	Offset           string
	EnqueuedTimeUtc  string
	SystemProperties map[string]any
	Properties       map[string]any
	Body             []byte
}

var capturedFields = []string{"SequenceNumber", "Offset", "EnqueuedTimeUtc", "SystemProperties", "Properties", "Body"}

// isAvro reports whether an input begins as an Avro file does. It waits for no more than differs.
func isAvro(in *bufio.Reader) bool {
	for n := 1; n <= len(avroSignature); n++ {
		if head, _ := in.Peek(n); string(head) != avroSignature[:n] {
			return false
		}
	}
	return true
}

func (r *Reader) capture(in io.Reader) error {
	reader, err := ocf.NewReader(in)
	if err != nil {
		return fmt.Errorf("%s: Avro: %w", r.file, err)
	}
	c := &capture{in: reader, file: r.file}
	root := reader.Schema().Root()
	for _, name := range capturedFields {
		if !slices.ContainsFunc(root.Fields, func(f avro.SchemaField) bool { return f.Name == name }) {
			return fmt.Errorf("%s: Avro, but not of Event Hubs Capture (it has no %s): export its rows as CSV or JSON lines", r.file, name)
		}
	}
	r.next = c.next
	return nil
}

func (c *capture) next() (Record, error) {
	c.number++
	at := Place{File: c.file, Unit: "event", Number: c.number}
	var e captured
	switch err := c.in.Decode(&e); {
	case errors.Is(err, io.EOF):
		return Record{}, errors.Join(io.EOF, c.in.Close())
	case err != nil:
		return Record{}, fmt.Errorf("%s: %w", at, err)
	case len(e.Body) > MaxSize:
		return Record{}, tooLarge(at, len(e.Body))
	}
	event, err := e.event()
	if err != nil {
		return Record{}, &RejectedError{Place: at, Reason: err.Error()}
	}
	return Record{Place: at, Body: e.Body, Event: event}, nil
}

// enqueuedLayouts are how Capture writes times.
var enqueuedLayouts = []string{"1/2/2006 3:04:05 PM", time.RFC3339Nano, "2006-01-02T15:04:05.999999999"}

// event returns the event. Its partition is in the name of the file, which users choose, so that it
// is not known.
func (c *captured) event() (*driver.Event, error) {
	e := &driver.Event{Partition: "0", Sequence: c.SequenceNumber, Offset: c.Offset, Properties: c.Properties, Body: c.Body}
	text := func(name string) string {
		s, _ := c.SystemProperties[name].(string)
		return s
	}
	e.Key, e.ContentType = text("x-opt-partition-key"), text("content-type")
	e.MessageID, e.CorrelationID = text("message-id"), text("correlation-id")
	for _, layout := range enqueuedLayouts {
		if at, err := time.Parse(layout, c.EnqueuedTimeUtc); err == nil {
			e.Enqueued = at.UTC()
			return e, nil
		}
	}
	return nil, fmt.Errorf("EnqueuedTimeUtc is %.40q, which is no known spelling of a time", c.EnqueuedTimeUtc)
}
