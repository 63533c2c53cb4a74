package stamp

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// CausationID names a message by the event that caused it: message number N of those
// that the event causes. It is the same each time the message is sent.
type CausationID struct {
	// Source names the topic and how it is read: the topic's name, and after it a digest of
	// namespace, topic, its incarnation and the consumer group; in a topic that is Sparse, after a
	// dot, a digest of [driver.Position.History]. So ids differ where a hub was created again,
	// where a log has lost events and given their numbers to others, and where two stages that read
	// one hub feed the same next one.
	Source    string
	Partition string // of the event
	Sequence  int64  // of the event, at least 0
	N         int    // from 0 on
}

// maxCausationID bounds the text of a causation id, in bytes.
const maxCausationID = 512

// String returns source/partition/sequence/n. In source and partition, slashes, percent
// signs, spaces and everything that is not printable ASCII are percent-encoded.
func (id CausationID) String() string {
	b := make([]byte, 0, len(id.Source)+len(id.Partition)+24)
	b = append(appendPart(b, id.Source), '/')
	b = append(appendPart(b, id.Partition), '/')
	b = append(strconv.AppendInt(b, id.Sequence, 10), '/')
	return string(strconv.AppendInt(b, int64(id.N), 10))
}

// plain reports whether a byte stands for itself in a part of an id.
func plain(c byte) bool { return c > ' ' && c < 0x7f && c != '/' && c != '%' }

func appendPart(b []byte, part string) []byte {
	const digits = "0123456789ABCDEF"
	for i := range len(part) {
		if c := part[i]; plain(c) {
			b = append(b, c)
		} else {
			b = append(b, '%', digits[c>>4], digits[c&15])
		}
	}
	return b
}

var errCausationID = errors.New("want source/partition/sequence/n")

// ParseCausationID reads what [CausationID.String] writes, and nothing else: an id has one
// text.
func ParseCausationID(text string) (CausationID, error) {
	origin, sequence, n, err := cutCausationID(text)
	if err != nil {
		return CausationID{}, fmt.Errorf("causation id %.80q: %w", text, err)
	}
	source, partition, _ := strings.Cut(origin, "/")
	id := CausationID{Sequence: sequence, N: n}
	if id.Source, err = readPart(source); err == nil {
		id.Partition, err = readPart(partition)
	}
	if err != nil {
		return CausationID{}, fmt.Errorf("causation id %.80q: %w", text, err)
	}
	return id, nil
}

// cutCausationID separates an id's origin (source and partition, as they are written) from
// its numbers. It allocates nothing.
func cutCausationID(text string) (origin string, sequence int64, n int, err error) {
	if len(text) > maxCausationID {
		return "", 0, 0, fmt.Errorf("longer than %d bytes", maxCausationID)
	}
	last := strings.LastIndexByte(text, '/')
	if last < 0 {
		return "", 0, 0, errCausationID
	}
	middle := strings.LastIndexByte(text[:last], '/')
	if middle < 0 || strings.Count(text[:middle], "/") != 1 {
		return "", 0, 0, errCausationID
	}
	sequence, err = readNumber(text[middle+1:last], 63)
	if err != nil {
		return "", 0, 0, err
	}
	number, err := readNumber(text[last+1:], 31)
	if err != nil {
		return "", 0, 0, err
	}
	return text[:middle], sequence, int(number), nil
}

// readNumber reads a number as [strconv.AppendInt] writes those from 0 on.
func readNumber(text string, bits int) (int64, error) {
	if text == "" || len(text) > 1 && text[0] == '0' || text[0] == '+' {
		return 0, errCausationID
	}
	n, err := strconv.ParseUint(text, 10, bits)
	if err != nil {
		return 0, errCausationID
	}
	return int64(n), nil
}

func readPart(text string) (string, error) {
	encoded := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case plain(c):
		case c == '%' && i+2 < len(text) && nibble(text[i+1]) < 16 && nibble(text[i+2]) < 16 && !plain(nibble(text[i+1])<<4|nibble(text[i+2])):
			encoded = true
			i += 2
		default:
			return "", errors.New("not encoded as ids are")
		}
	}
	if !encoded {
		return text, nil
	}
	b := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		if text[i] != '%' {
			b = append(b, text[i])
			continue
		}
		b = append(b, nibble(text[i+1])<<4|nibble(text[i+2]))
		i += 2
	}
	return string(b), nil
}

// nibble is the value of a hexadecimal digit, 16 if it is none.
func nibble(c byte) byte {
	switch {
	case c >= '0' && c <= '9':
		return c - '0'
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10
	}
	return 16
}
