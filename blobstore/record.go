package blobstore

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-go/sluice/driver"
)

// Room in a blob's metadata: names and values together may take 8 KB, of which
// some is left for what a later version may want to add.
const (
	maxMetadata = 7900
	maxText     = 512 // of a single text, as written
)

// record is the content of the metadata of a partition's blob.
type record struct {
	lease      leaseRecord
	checkpoint *driver.Checkpoint // without group and partition; nil if there is none
}

// leaseRecord is the newest lease; its epoch is 0 if there never was one.
type leaseRecord struct {
	owner   string
	epoch   int64
	seconds int64     // its length; 0 after the release
	renewed time.Time // by the server's clock, to the second
	began   string    // the [driver.Lease]'s
}

func (l leaseRecord) is(lease driver.Lease) bool {
	return l.epoch == lease.Epoch && l.owner == lease.Owner
}

func (l leaseRecord) released() bool { return l.seconds == 0 }

// later reports whether the lease in the record is a later one.
func (l leaseRecord) later(lease driver.Lease) bool {
	return l.epoch > lease.Epoch || l.epoch == lease.Epoch && l.owner != lease.Owner
}

// metadata is what is stored: names in lower case, values that are plain ASCII.
type metadata map[string]*string

func (m metadata) text(name, value string) {
	if value != "" { // the SDK cannot send an empty value
		escaped := url.PathEscape(value)
		m[name] = &escaped
	}
}

func (m metadata) number(name string, n int64) { m.text(name, strconv.FormatInt(n, 10)) }

func (m metadata) time(name string, t time.Time) {
	if !t.IsZero() {
		m.text(name, t.UTC().Format(time.RFC3339Nano))
	}
}

// attempt writes an attempt record, with as much of its error as there is room for.
func (m metadata) attempt(a driver.AttemptRecord) {
	if a == (driver.AttemptRecord{}) {
		return
	}
	text := []rune(a.Error)
	for len(url.PathEscape(string(text))) > maxText {
		text = text[:len(text)*9/10]
	}
	m.number("attemptsequence", a.Sequence)
	m.number("attemptdeadletter", a.DeadLetter)
	m.number("attempts", int64(a.Attempts))
	m.number("attemptsunreturned", int64(a.Unreturned))
	m.text("attempterror", string(text))
}

func (m metadata) size() (n int) {
	for name, value := range m {
		n += len(name) + len(*value)
	}
	return n
}

// fields reads metadata. The SDK gives names as HTTP writes them; the first
// value that cannot be read is kept as the error.
type fields struct {
	values map[string]string
	err    error
}

func fieldsOf(m map[string]*string) *fields {
	f := &fields{values: make(map[string]string, len(m))}
	for name, value := range m {
		if value != nil {
			f.values[strings.ToLower(name)] = *value
		}
	}
	return f
}

func (f *fields) has(name string) bool { return f.values[name] != "" }

func (f *fields) fail(name string, err error) {
	if err != nil && f.err == nil {
		f.err = fmt.Errorf("metadata %q: %w", name, err)
	}
}

func (f *fields) text(name string) string {
	text, err := url.PathUnescape(f.values[name])
	f.fail(name, err)
	return text
}

func (f *fields) number(name string) int64 {
	text := f.values[name]
	if text == "" {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 64)
	f.fail(name, err)
	return n
}

func (f *fields) time(name string) time.Time {
	text := f.text(name)
	if text == "" {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	f.fail(name, err)
	return t.UTC()
}

// encode writes the record. Of what is done after the checkpoint it keeps the
// first ranges that there is room for.
func (r *record) encode() metadata {
	m := metadata{}
	if l := r.lease; l.epoch > 0 {
		m.text("leaseowner", l.owner)
		m.number("leaseepoch", l.epoch)
		m.number("leaseseconds", l.seconds)
		m.time("leaserenewed", l.renewed)
		m.text("leasebegan", l.began)
	}
	c := r.checkpoint
	if c == nil {
		return m
	}
	m.text("owner", c.Owner)
	m.number("epoch", c.Epoch)
	m.text("incarnation", c.Incarnation)
	m.number("sequencenumber", c.Position.Sequence)
	if o := c.Position.Offset; len(url.PathEscape(o)) <= maxText { // no log has a longer one, and the number alone will do
		m.text("offset", o)
	}
	if c.Began.Known() {
		m.number("beganafter", c.Began.After)
		m.text("beganhow", string(c.Began.How))
	}
	m.number("claims", int64(c.Claims))
	m.attempt(c.Attempt)
	m.time("updated", c.Updated)
	m.text("done", packRanges(c.Position.Sequence, c.Done, maxMetadata-m.size()-len("done")))
	return m
}

// decode reads a record.
func decode(m map[string]*string) (record, error) {
	f := fieldsOf(m)
	r := record{lease: leaseRecord{
		owner: f.text("leaseowner"), epoch: f.number("leaseepoch"), seconds: f.number("leaseseconds"), renewed: f.time("leaserenewed"), began: f.text("leasebegan"),
	}}
	if f.has("epoch") {
		c := &driver.Checkpoint{
			Owner: f.text("owner"), Epoch: f.number("epoch"), Incarnation: f.text("incarnation"),
			Position: driver.Position{Sequence: f.number("sequencenumber"), Offset: f.text("offset")},
			Began:    driver.Beginning{After: f.number("beganafter"), How: driver.How(f.text("beganhow"))},
			Claims:   int(f.number("claims")), Updated: f.time("updated"),
			Attempt: driver.AttemptRecord{
				Sequence: f.number("attemptsequence"), DeadLetter: f.number("attemptdeadletter"),
				Attempts: int(f.number("attempts")), Unreturned: int(f.number("attemptsunreturned")), Error: f.text("attempterror"),
			},
		}
		var err error
		c.Done, err = unpackRanges(c.Position.Sequence, f.text("done"))
		f.fail("done", err)
		r.checkpoint = c
	}
	return r, f.err
}

// fits returns an error if a name is too long for the metadata.
func fits(what, text string) error {
	if n := len(url.PathEscape(text)); n > maxText {
		return fmt.Errorf("%s takes %d bytes, and a blob's metadata has room for %d: %w", what, n, maxText, driver.ErrRefused)
	}
	return nil
}
