//go:build unix

package sqlservertest

import (
	"encoding/binary"
	"fmt"
	"regexp"
	"unicode/utf16"
)

// unencrypted reports whether a client's PRELOGIN says that it cannot encrypt. A list of options
// comes first: the number of each, and offset and length of its value.
func unencrypted(body []byte) bool {
	const (
		encryption   = 1
		end          = 0xFF
		notSupported = 2
	)
	for options := body; len(options) >= 5 && options[0] != end; options = options[5:] {
		if at := int(binary.BigEndian.Uint16(options[1:])); options[0] == encryption {
			return at < len(body) && body[at] == notSupported
		}
	}
	return false
}

// Requests to the transaction manager, as the statements that do the same.
var transactionRequests = map[uint16]string{5: "BEGIN TRANSACTION", 7: "COMMIT", 8: "ROLLBACK", 9: "SAVE TRANSACTION"}

// statements returns the text of what a message executes, and whether it is or has a COMMIT.
func statements(kind byte, body []byte) (texts []string, commit bool) {
	f := fields(body)
	if n := f.long(); n >= 4 { // all headers, with their length
		f.take(int(n) - 4)
	}
	var text string
	switch kind {
	case packetBatch:
		text = f.text(len(f))
	case packetProcedure:
		text = procedure(f)
	case packetTransaction:
		text = transactionRequests[f.short()]
	default:
		return nil, false
	}
	return []string{text}, commits(text)
}

// procedure returns the text of a call of sp_executesql, or the call of another procedure.
func procedure(f fields) string {
	const (
		byNumber   = 0xFFFF // there is a number instead of a name
		executeSQL = 10
	)
	length := int(f.short())
	if length != byNumber {
		return "EXEC " + f.text(2*length)
	}
	number := f.short()
	if number != executeSQL {
		return fmt.Sprintf("EXEC procedure %d", number)
	}
	f.short()             // options
	f.take(2 * f.octet()) // the parameter's name
	f.octet()             // its options
	return f.nvarchar()
}

var (
	quoted     = regexp.MustCompile(`(?s)'(?:[^']|'')*'|"[^"]*"|\[[^\]]*\]|--[^\n]*|/\*.*?\*/`)
	commitWord = regexp.MustCompile(`(?i)(?:^|[^\w@#$])COMMIT(?:$|[^\w@#$])`)
)

// commits reports whether a statement in sql is a COMMIT, as far as the text shows it.
func commits(sql string) bool {
	return commitWord.MatchString(quoted.ReplaceAllLiteralString(sql, " "))
}

// fields are the fields of a message that were not yet read. Those that are missing are zero.
type fields []byte

func (f *fields) take(n int) []byte {
	n = max(0, min(n, len(*f)))
	taken := (*f)[:n]
	*f = (*f)[n:]
	return taken
}

func (f *fields) number(length int) uint64 {
	var buf [8]byte
	copy(buf[:], f.take(length))
	return binary.LittleEndian.Uint64(buf[:])
}

func (f *fields) octet() int     { return int(f.number(1)) }
func (f *fields) short() uint16  { return uint16(f.number(2)) }
func (f *fields) long() uint32   { return uint32(f.number(4)) }
func (f *fields) longer() uint64 { return f.number(8) }

// text takes a text of so many bytes.
func (f *fields) text(length int) string {
	taken := fields(f.take(length))
	units := make([]uint16, len(taken)/2)
	for i := range units {
		units[i] = taken.short()
	}
	return string(utf16.Decode(units))
}

// nvarchar takes a value with its type; "" if it is NULL or of another type.
func (f *fields) nvarchar() string {
	const (
		typeNVarChar = 0xE7
		inChunks     = 0xFFFF // nvarchar(max)
		null         = 0xFFFF
	)
	if f.octet() != typeNVarChar {
		return ""
	}
	most := f.short()
	f.take(5) // collation
	if most != inChunks {
		if n := f.short(); n != null {
			return f.text(int(n))
		}
		return ""
	}
	f.longer() // the length of all chunks, or that it is not known
	var whole fields
	for n := f.long(); n > 0; n = f.long() {
		whole = append(whole, f.take(int(n))...)
	}
	return whole.text(len(whole))
}
