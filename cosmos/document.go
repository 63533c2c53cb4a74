package cosmos

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/partitionkey"
)

// Document is one document to write. The sink uses its slices until the record is
// completed.
type Document struct {
	// ID is the document's id, unique within its partition key: up to 1,023 bytes
	// without /, \, ? and #. The sink adds it to the body if the body has no id.
	ID string

	// PartitionKey are the values at the container's partition key paths, one
	// to three: string, bool, nil, any integer or float, [json.Number], or
	// [Undefined] where the body lacks the property. They must equal the values in
	// the body.
	PartitionKey []any

	// Body is a JSON object. Delete needs none. That of Patch is an array of up to 10 operations,
	// as in [{"op": "set", "path": "/status", "value": "paid"}].
	Body []byte

	// Operation is Upsert by default.
	Operation Operation

	// Source is the event of the document. If it is set, the document records it
	// and the write is conditional, see the package comment. An event must then
	// have at most one document with an id: a second one would be taken for a
	// repetition. Nil: the last write wins.
	Source *Source
}

// Operation is how a document is written.
type Operation byte

// Upsert writes the document whether or not it exists, Create only if it does not,
// and Replace only if it does; otherwise the record is rejected. But Create succeeds
// if the existing document is of the same event, because that is a repetition after
// a crash or a lost response. Delete removes the document, and succeeds if there is none; it cannot
// be conditional, because what is not there records no event. Patch changes parts of a document
// that exists, otherwise the record is rejected. It is repeated after a crash, so that an increment
// can count twice. A Source takes one of the 10 operations.
const (
	Upsert Operation = iota
	Create
	Replace
	Delete
	Patch
)

// Source is the position of an event in its log. Documents have it as the property
// [StampProperty], one string, which costs one entry in the index. An indexing policy
// that excludes the path "/_sluice/?" saves that too.
type Source struct {
	// Topic names the log within which sequence numbers can be compared. The
	// sequence numbers of a recreated hub begin again at 0, so its incarnation
	// should be part of the name. It may be empty.
	Topic     string
	Partition string // without spaces
	Epoch     int64  // of the lease
	Sequence  int64
}

// StampProperty is the name of the property that holds a document's [Source].
const StampProperty = "_sluice"

// Undefined is the partition key value of a document without the property.
var Undefined = undefined{}

type undefined struct{}

// newer reports whether an event's write may replace that of old, which is from the
// same partition of the same log. The sequence number decides: a repetition or a late
// retry of an older event never wins, whatever its epoch. The epoch decides between
// two writes of one event, so that events are written again if an operator resets the
// checkpoint to process them again.
func (s *Source) newer(old *Source) bool {
	return s.Sequence > old.Sequence || s.Sequence == old.Sequence && s.Epoch > old.Epoch
}

// comparable reports whether both are of the same partition, so that their sequence
// numbers can be compared.
func (s *Source) comparable(o *Source) bool { return s.Topic == o.Topic && s.Partition == o.Partition }

func (s *Source) append(dst []byte) []byte {
	var space [128]byte
	text := strconv.AppendInt(space[:0], s.Sequence, 10)
	text = strconv.AppendInt(append(text, ' '), s.Epoch, 10)
	text = append(append(append(append(text, ' '), s.Partition...), ' '), s.Topic...)
	return appendText(dst, string(text))
}

// parseSource parses a stamp. It returns nil if the value is no stamp.
func parseSource(value []byte) *Source {
	var text string
	if json.Unmarshal(value, &text) != nil {
		return nil
	}
	parts := strings.SplitN(text, " ", 4)
	if len(parts) != 4 {
		return nil
	}
	sequence, err1 := strconv.ParseInt(parts[0], 10, 64)
	epoch, err2 := strconv.ParseInt(parts[1], 10, 64)
	if err1 != nil || err2 != nil {
		return nil
	}
	return &Source{Sequence: sequence, Epoch: epoch, Partition: parts[2], Topic: parts[3]}
}

// record is a document that is not completed.
type record struct {
	ctx  context.Context
	doc  Document
	done func(driver.WriteResult)

	lookup *Stored // where to store what is read; nil: the document is to be written

	key   [3]partitionkey.Value // the partition key,
	keys  int                   // of so many values
	named bool                  // the body has the id
	bytes int                   // estimated size in a batch

	queued    time.Duration // when it was queued, by the sink's clock
	step      step          // what goes out next
	etag      string        // the version that is to be replaced; empty: any
	attempts  int           // steps of a conditional write after the first
	absent    int           // how often a read has not found it
	cost      float64       // so far
	waited    time.Duration // how long its batch waited for the budget
	refusedBy *queue        // the queue whose range is gone or another,
	refusal   *Error        // with this error
}

// step is the next operation of a record.
type step byte

const (
	upsert step = iota
	create
	replace
	remove
	patch
	read
)

func (s step) String() string {
	return [...]string{"Upsert", "Create", "Replace", "Delete", "Patch", "Read"}[s]
}

// hasBody reports whether the document goes out with the step.
func (s step) hasBody() bool { return s < remove || s == patch }

// overwrites reports whether the step changes a document that exists, whose version may matter.
func (s step) overwrites() bool { return s == replace || s == patch }

var errStamped = fmt.Errorf("the body has a property %s, which is reserved for the sink: rename it", StampProperty)

// check validates everything about a document that can be known without a request.
func (r *record) check() error {
	d := &r.doc
	switch {
	case d.ID == "":
		return errors.New("the id is empty")
	case len(d.ID) > 1023:
		return fmt.Errorf("the id %.40q… has %d bytes: at most 1023", d.ID, len(d.ID))
	case BadIDCharacter(d.ID) != "":
		return fmt.Errorf("the id %.80q contains %s, which no id in Cosmos DB may have: put another character in its place", d.ID, BadIDCharacter(d.ID))
	case d.Operation > Patch:
		return fmt.Errorf("operation %d: no such operation", d.Operation)
	case d.Operation == Delete && d.Source != nil:
		return errors.New("a Delete cannot be conditional: leave Source empty")
	case d.Source != nil && (d.Source.Partition == "" || strings.Contains(d.Source.Partition, " ")):
		return fmt.Errorf("the source's partition %.40q: must not be empty or have spaces", d.Source.Partition)
	}
	if err := r.setKey(d.PartitionKey); err != nil {
		return err
	}
	switch d.Operation {
	case Delete:
		return nil
	case Patch:
		return r.checkPatch()
	}
	var err error
	if !members(d.Body, func(name, value []byte) {
		switch string(name) {
		case "id":
			r.named = true
			if !isText(value, d.ID) && err == nil {
				err = fmt.Errorf("the body's id is %.80s, the document's %.80q: must be the same", value, d.ID)
			}
		case StampProperty:
			if d.Source != nil && err == nil {
				err = errStamped
			}
		default:
			// A name with escapes may be one of the two.
			if bytes.IndexByte(name, '\\') >= 0 && err == nil && (isText(quoted(name), "id") || isText(quoted(name), StampProperty)) {
				err = fmt.Errorf("the body's property %s: write the name without escapes", name)
			}
		}
	}) {
		return errors.New("the body is not a JSON object in UTF-8")
	}
	return err
}

// maxPatch is how many operations a patch has at most.
const maxPatch = 10

func (r *record) checkPatch() error {
	n, most := 0, maxPatch
	if r.doc.Source != nil {
		most--
	}
	switch valid := elements(r.doc.Body, func([]byte) { n++ }); {
	case !valid || n == 0:
		return errors.New("the body of a patch is not a JSON array of operations")
	case n > most:
		return fmt.Errorf("the patch has %d operations: at most %d", n, most)
	}
	return nil
}

// appendPatch appends the patch as the account takes it.
func (r *record) appendPatch(dst []byte) []byte {
	operations := bytes.TrimRight(r.doc.Body, " \t\r\n")
	dst = append(append(dst, `{"operations":`...), operations[:len(operations)-1]...)
	if r.doc.Source != nil {
		dst = append(r.doc.Source.append(append(dst, `,{"op":"set","path":"/`+StampProperty+`","value":`...)), '}')
	}
	return append(dst, "]}"...)
}

// BadIDCharacter returns the first character of an id that Cosmos DB allows in none, empty if there
// is none.
func BadIDCharacter(id string) string {
	if i := strings.IndexAny(id, `/\?#`); i >= 0 {
		return id[i : i+1]
	}
	return ""
}

func quoted(name []byte) []byte { return append(append([]byte{'"'}, name...), '"') }

// isText reports whether a JSON value is the string s.
func isText(value []byte, s string) bool {
	if len(value) == len(s)+2 && value[0] == '"' && string(value[1:len(value)-1]) == s && !strings.ContainsAny(s, `"\`) {
		return true
	}
	if bytes.IndexByte(value, '\\') < 0 {
		return false
	}
	var text string
	return json.Unmarshal(value, &text) == nil && text == s
}

func (r *record) setKey(values []any) error {
	if len(values) == 0 || len(values) > len(r.key) {
		return fmt.Errorf("the partition key has %d values: 1 to %d", len(values), len(r.key))
	}
	r.keys = len(values)
	for i, v := range values {
		k, err := keyValue(v)
		if err != nil {
			return fmt.Errorf("partition key value %d: %w", i+1, err)
		}
		r.key[i] = k
	}
	return nil
}

func keyValue(v any) (partitionkey.Value, error) {
	switch v := v.(type) {
	case string:
		if len(v) > 2048 {
			return partitionkey.Value{}, fmt.Errorf("%d bytes: at most 2048", len(v))
		}
		return partitionkey.String(v), nil
	case nil:
		return partitionkey.Null, nil
	case bool:
		return partitionkey.Bool(v), nil
	case undefined:
		return partitionkey.Undefined, nil
	case int:
		return partitionkey.Number(float64(v)), nil
	case int64:
		return partitionkey.Number(float64(v)), nil
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return partitionkey.Value{}, fmt.Errorf("%v is no JSON number", v)
		}
		return partitionkey.Number(v), nil
	case json.Number:
		f, err := v.Float64()
		if err != nil {
			return partitionkey.Value{}, fmt.Errorf("%.40q is no JSON number", string(v))
		}
		return partitionkey.Number(f), nil
	case int32:
		return partitionkey.Number(float64(v)), nil
	case int16:
		return partitionkey.Number(float64(v)), nil
	case int8:
		return partitionkey.Number(float64(v)), nil
	case uint:
		return partitionkey.Number(float64(v)), nil
	case uint64:
		return partitionkey.Number(float64(v)), nil
	case uint32:
		return partitionkey.Number(float64(v)), nil
	case uint16:
		return partitionkey.Number(float64(v)), nil
	case uint8:
		return partitionkey.Number(float64(v)), nil
	case float32:
		return keyValue(float64(v))
	}
	return partitionkey.Value{}, fmt.Errorf("a %T: must be a string, number, bool, nil or Undefined", v)
}

// values returns the components of the partition key.
func (r *record) values() []partitionkey.Value { return r.key[:r.keys] }

// size estimates the record's bytes in a batch, rather too high than too low.
func (r *record) size() int {
	n := 192 + len(r.doc.Body) + 2*len(r.doc.ID)
	for _, v := range r.doc.PartitionKey {
		if s, ok := v.(string); ok {
			n += len(s) + len(s)/4
		}
	}
	if s := r.doc.Source; s != nil {
		n += 64 + len(s.Topic) + len(s.Partition)
	}
	return n
}

// appendBody appends the document as it is stored, with its id and stamp.
func (r *record) appendBody(dst []byte) []byte {
	if r.doc.Operation == Patch {
		return r.appendPatch(dst)
	}
	body := bytes.TrimSpace(r.doc.Body)
	if r.named && r.doc.Source == nil {
		return append(dst, body...)
	}
	dst = append(dst, '{')
	if !r.named {
		dst = appendText(append(dst, `"id":`...), r.doc.ID)
	}
	if r.doc.Source != nil {
		if !r.named {
			dst = append(dst, ',')
		}
		dst = r.doc.Source.append(append(dst, `"`+StampProperty+`":`...))
	}
	rest := bytes.TrimLeft(body[1:], " \t\r\n")
	if rest[0] != '}' {
		dst = append(dst, ',')
	}
	return append(dst, rest...)
}

// appendOperation appends the record's next step as an operation of a batch.
func (r *record) appendOperation(dst []byte) []byte {
	dst = append(dst, `{"operationType":"`...)
	dst = append(dst, r.step.String()...)
	dst = append(dst, `","partitionKey":"`...)
	dst = r.appendKey(dst, true)
	dst = append(dst, '"')
	if r.step >= replace {
		dst = appendText(append(dst, `,"id":`...), r.doc.ID)
	}
	if r.step.overwrites() && r.etag != "" {
		dst = appendText(append(dst, `,"ifMatch":`...), r.etag)
	}
	if r.step.hasBody() {
		// Without this preference the account returns every document.
		dst = append(dst, `,"minimalReturnPreference":true,"resourceBody":`...)
		dst = r.appendBody(dst)
	}
	return append(dst, '}')
}

// appendKey appends the partition key's JSON, which is ASCII. If nested, it is
// escaped for use within a JSON string.
func (r *record) appendKey(dst []byte, nested bool) []byte {
	if !nested {
		return partitionkey.AppendJSON(dst, r.values())
	}
	var space [256]byte
	for _, c := range partitionkey.AppendJSON(space[:0], r.values()) {
		if c == '"' || c == '\\' {
			dst = append(dst, '\\')
		}
		dst = append(dst, c)
	}
	return dst
}
