package infer

import (
	"bytes"
	"encoding/json"
	"hash/maphash"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-go/sluice/pipeline/internal/jsonpick"
	"github.com/sluice-go/sluice/pipeline/internal/times"
)

// leaf is what the values at a path are that are no objects.
type leaf struct {
	seen, nulls                        int
	texts, numbers, booleans, arrays   int
	wholes, large, long                int // numbers: whole, beyond 64 bits, of more digits than a double has
	zoned, unzoned, dates, trues, none int // texts: times with and without an offset, dates, true or false, the empty text
	halves                             int // texts that no column of text stores
	quoted                             int // texts that are numbers as JSON has them
	candidates                         []*candidate
	units                              map[string]int // of numbers that are times of our days
	example                            string
	distinct                           map[uint64]struct{} // of the first texts and numbers; nil after the first repetition
	unique                             bool
}

// candidate is a pattern that all texts so far have.
type candidate struct {
	format *times.Format
	name   string
}

// patterns are tried on texts that are no times in a common spelling. Where two fit all samples, as
// for 01/02/2026, neither is taken.
var patterns = []string{
	"dd.MM.yyyy", "d.M.yyyy", "MM/dd/yyyy", "M/d/yyyy", "dd/MM/yyyy", "d/M/yyyy", "yyyy/MM/dd", "dd-MM-yyyy", "MM-dd-yyyy",
	"MMM dd yyyy", "MMM d yyyy", "MMM dd, yyyy", "MMM d, yyyy", "MMMM d, yyyy", "d MMM yyyy", "dd MMM yyyy", "d-MMM-yyyy", "dd-MMM-yy", "d-MMM-yy", "M/d/yy", "MM/dd/yy", "dd.MM.yy",
	"yyyyMMddHHmmss", "EEE MMM dd HH:mm:ss yyyy", "dd/MMM/yyyy:HH:mm:ss Z",
}

// clocks may follow a date.
var clocks = []string{"", " HH:mm", " H:mm", " HH:mm:ss", " H:mm:ss", " HH:mm:ss.SSS", " hh:mm:ss a", " h:mm:ss a", " h:mm a", "'T'HH:mm:ss"}

var allCandidates = func() (list []*candidate) {
	for _, p := range patterns {
		for _, c := range clocks {
			if f, err := times.NewFormat(p + c); err == nil {
				list = append(list, &candidate{f, p + c})
			}
		}
	}
	return list
}()

const (
	maxDistinct = 20_000
	maxExample  = 40
	exactDigits = 15 // that a double always keeps
)

var seed = maphash.MakeSeed()

// add adds a value as JSON has it, which begins with first.
func (l *leaf) add(first byte, raw []byte) {
	if l.seen++; l.seen == 1 {
		l.distinct, l.unique = map[uint64]struct{}{}, true
	}
	switch first {
	case 'n':
		l.nulls++
		return
	case '[':
		l.arrays++
	case 't', 'f':
		l.booleans++
	case '"':
		l.text(raw)
	default:
		l.number(raw)
	}
	if l.example == "" && first != '[' {
		l.example = shortened(raw)
	}
	if l.distinct != nil {
		h := maphash.Bytes(seed, raw)
		if _, again := l.distinct[h]; again || first == '[' {
			l.distinct, l.unique = nil, false
		} else if len(l.distinct) < maxDistinct {
			l.distinct[h] = struct{}{}
		}
	}
}

func shortened(raw []byte) string {
	s := strings.ToValidUTF8(string(raw), "")
	if runes := []rune(s); len(runes) > maxExample {
		return string(runes[:maxExample]) + "…"
	}
	return s
}

func (l *leaf) text(raw []byte) {
	l.texts++
	text, err := (jsonpick.Value{Kind: jsonpick.String, Raw: raw}).Text()
	if err != nil || bytes.IndexByte(text, 0) >= 0 {
		l.halves++
		return
	}
	if len(text) == 0 {
		l.none++
		return
	}
	if isNumber(text) {
		l.quoted++
	}
	if bytes.EqualFold(text, []byte("true")) || bytes.EqualFold(text, []byte("false")) {
		l.trues++
	}
	if _, err := times.Parse(text, nil); err == nil {
		l.zoned++
	} else if _, err := times.Parse(text, time.UTC); err == nil {
		l.unzoned++
	}
	if _, err := times.ParseDate(text); err == nil && !isDigits(text) {
		l.dates++
	}
	if l.texts == 1 {
		l.candidates = allCandidates
	}
	var left []*candidate
	for _, c := range l.candidates {
		if _, err := c.format.Time(text, time.UTC); err == nil {
			left = append(left, c)
		}
	}
	l.candidates = left
}

func (l *leaf) number(raw []byte) {
	l.numbers++
	digits := 0
	for _, b := range bytes.TrimLeft(raw, "-0.") {
		if b == 'e' || b == 'E' {
			break
		}
		if b >= '0' && b <= '9' {
			digits++
		}
	}
	whole := !bytes.ContainsAny(raw, ".eE")
	switch _, err := strconv.ParseInt(string(raw), 10, 64); {
	case whole && err == nil:
		l.wholes++
	case whole:
		l.large++
	case digits > exactDigits:
		l.long++
	default:
		if _, err := strconv.ParseFloat(string(raw), 64); err != nil { // it is out of range
			l.long++
		}
	}
	if unit := times.Guess(raw); unit != "" {
		if l.units == nil {
			l.units = map[string]int{}
		}
		l.units[unit]++
	}
}

// isNumber reports whether a text is a number that a column of numbers keeps: without zeros before
// it.
func isNumber(text []byte) bool {
	return (text[0] == '-' || text[0] >= '0' && text[0] <= '9') && json.Valid(text)
}

func isDigits(text []byte) bool { return bytes.Trim(text, "0123456789") == nil }

// guess returns the type and notation that take all values, and why.
func (l *leaf) guess(name string) (c Column) {
	given := l.seen - l.nulls
	switch {
	case given == 0:
		return Column{Type: "json", Why: "always null"}
	case l.arrays > 0 || l.halves > 0:
		return Column{Type: "json"}
	case l.booleans == given, l.trues == given:
		return Column{Type: "boolean"}
	case l.numbers == given:
		return l.numeric(name)
	case l.texts == given && l.none == 0:
		return l.textual()
	}
	c = Column{Type: "text"}
	rest := l.texts - l.none
	switch {
	case l.texts < given:
		c.Why = "numbers, booleans and texts"
	case rest == 0:
	case l.zoned+l.unzoned == rest, l.dates == rest, len(l.candidates) > 0:
		c.Why = "dates or times, but some are empty"
	case l.quoted == rest:
		c.Why = "numbers in quotes, but some are empty"
	case l.trues == rest:
		c.Why = "true and false, but some are empty"
	}
	return c
}

func (l *leaf) numeric(name string) Column {
	for unit, n := range l.units {
		if n == l.numbers && soundsLikeTime(name) {
			return Column{Type: "timestamp", Format: unit, Why: "a number that is a time of our days, by its name and size"}
		}
	}
	switch {
	case l.wholes == l.numbers:
		return Column{Type: "bigint"}
	case l.large+l.long > 0:
		return Column{Type: "numeric", Why: "more digits than a double has, or beyond its range"}
	}
	return Column{Type: "double"}
}

func (l *leaf) textual() Column {
	switch {
	case l.dates == l.texts && l.zoned == 0:
		return Column{Type: "date"}
	case l.zoned == l.texts:
		return Column{Type: "timestamp"}
	case l.zoned+l.unzoned == l.texts:
		return Column{Type: "timestamp", Zone: "UTC", Why: "times without an offset: UTC is a guess"}
	case l.quoted == l.texts:
		return Column{Type: "text", Why: "numbers in quotes: bigint, double or numeric may fit too"}
	case len(l.candidates) == 0:
		return Column{Type: "text"}
	}
	// Of patterns that differ in leading zeros the first is taken: dd is before d.
	best := l.candidates[0]
	for _, c := range l.candidates[1:] {
		if fieldsOf(c.name) != fieldsOf(best.name) {
			return Column{Type: "text", Why: "dates as " + best.name + " or " + c.name + ": write type and format"}
		}
	}
	if best.format.Timed() {
		c := Column{Type: "timestamp", Format: best.name}
		if !best.format.Zoned() {
			c.Zone, c.Why = "UTC", "times without an offset: UTC is a guess"
		}
		return c
	}
	return Column{Type: "date", Format: best.name}
}

// fieldsOf returns the letters of a pattern, each once.
func fieldsOf(pattern string) string {
	var b strings.Builder
	for _, r := range strings.ReplaceAll(pattern, "h", "H") {
		if !strings.ContainsRune(b.String(), r) {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// soundsLikeTime reports whether a name is one that people give to times.
func soundsLikeTime(name string) bool {
	name = strings.ToLower(name)
	for _, part := range []string{"time", "date", "stamp", "epoch", "created", "updated", "modified", "expires", "when"} {
		if strings.Contains(name, part) {
			return true
		}
	}
	return name == "ts" || strings.HasSuffix(name, "_at") || strings.HasSuffix(name, "_ts") || name == "at" || name == "start" || name == "end"
}
