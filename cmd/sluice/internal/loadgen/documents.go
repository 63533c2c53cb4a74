package loadgen

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
)

// Documents are generated documents for load tests, numbered from 0. A document is a JSON object
// of three strings: an id that no other document has; a key, which documents share if the
// difference of their numbers is a multiple of the number of keys; and a payload that fills it up
// to its size. All of it follows from the number, so that a reader can find which documents are
// missing, and whether one is as it was sent.
type Documents struct{ cfg DocumentsConfig }

// DocumentsConfig configures [Documents]. The zero value is ready to use.
type DocumentsConfig struct {
	// Prefix is the beginning of every id; the number follows, with at least ten digits.
	// Default: "doc-".
	Prefix string
	// Keys is the number of keys. Default: 70,000.
	Keys int64
	// Size is the length of a document in bytes. Default: 1,000.
	Size int
}

// The limits of documents.
const (
	maxKeys   = 1_000_000
	maxSize   = 1_000_000
	maxPrefix = 100
)

// NewDocuments makes documents. A nil cfg takes every default.
func NewDocuments(cfg *DocumentsConfig) (*Documents, error) {
	d := &Documents{}
	if cfg != nil {
		d.cfg = *cfg
	}
	c := &d.cfg
	c.Prefix, c.Keys, c.Size = cmp.Or(c.Prefix, "doc-"), cmp.Or(c.Keys, 70_000), cmp.Or(c.Size, 1000)
	switch least := len(d.frame(nil, MaxCount-1)); {
	case len(c.Prefix) > maxPrefix || strings.ContainsFunc(c.Prefix, unfit):
		return nil, fmt.Errorf("id prefix %.100q: must be at most %d letters, digits and other ASCII characters without / \\ ? # < > & and quotes", c.Prefix, maxPrefix)
	case c.Keys < 1 || c.Keys > maxKeys:
		return nil, fmt.Errorf("%d keys: must be 1 to %d", c.Keys, maxKeys)
	case c.Size < least || c.Size > maxSize:
		return nil, fmt.Errorf("documents of %d bytes: must be %d, for id and key, to %d", c.Size, least, maxSize)
	}
	return d, nil
}

// unfit reports whether a character cannot be in an id: Cosmos DB refuses it there, JSON would
// escape it, or it is not ASCII.
func unfit(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`/\?#"<>&'`, r) }

// ID returns document n's id.
func (d *Documents) ID(n int64) string { return string(d.appendID(nil, n)) }

// Number returns the number of the document that has an id, if there is one.
func (d *Documents) Number(id string) (n int64, ok bool) {
	digits, ok := strings.CutPrefix(id, d.cfg.Prefix)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	return n, err == nil && n >= 0 && n < MaxCount && d.ID(n) == id
}

// Key returns document n's key.
func (d *Documents) Key(n int64) string { return string(d.appendKey(nil, n)) }

func (d *Documents) appendID(b []byte, n int64) []byte {
	b = append(b, d.cfg.Prefix...)
	for limit := int64(1e9); limit > n && limit > 1; limit /= 10 {
		b = append(b, '0')
	}
	return strconv.AppendInt(b, n, 10)
}

func (d *Documents) appendKey(b []byte, n int64) []byte {
	return strconv.AppendInt(append(b, "key-"...), n%d.cfg.Keys, 10)
}

// frame appends document n without its payload.
func (d *Documents) frame(b []byte, n int64) []byte {
	b = append(b, `{"id":"`...)
	b = d.appendID(b, n)
	b = append(b, `","key":"`...)
	b = d.appendKey(b, n)
	return append(b, `","payload":""}`...)
}

// Append appends document n.
func (d *Documents) Append(b []byte, n int64) []byte {
	start := len(b)
	b = d.frame(b, n)
	b = b[:len(b)-len(`"}`)]
	// Documents with neighbouring numbers get parts of the noise that are far apart.
	from := int(n * 7919 % int64(len(noise)))
	for left := d.cfg.Size - (len(b) - start) - len(`"}`); left > 0; {
		part := noise[from:min(from+left, len(noise))]
		b = append(b, part...)
		left -= len(part)
		from = 0
	}
	return append(b, `"}`...)
}

// noise is the text that payloads are cut from. It is random, so that it does not compress well.
var noise = func() string {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	r := rand.New(rand.NewPCG(1, 1))
	b := make([]byte, 1<<16)
	for i := range b {
		b[i] = letters[r.IntN(len(letters))]
	}
	return string(b)
}()
