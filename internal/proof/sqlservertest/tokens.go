//go:build unix

package sqlservertest

import (
	"encoding/binary"
	"fmt"
)

// Tokens of an answer.
const (
	tokenReturnStatus = 0x79
	tokenTableName    = 0xA4
	tokenColumnInfo   = 0xA5
	tokenOrder        = 0xA9
	tokenError        = 0xAA
	tokenInfo         = 0xAB
	tokenLoginAck     = 0xAD
	tokenEnvChange    = 0xE3
	tokenSSPI         = 0xED
	tokenDone         = 0xFD
	tokenDoneProc     = 0xFE
	tokenDoneInProc   = 0xFF
)

const (
	doneLength   = 13
	statusLength = 5 // of a return status
)

// tokens reads the tokens of answers, packet by packet. It does not read rows: from the first
// token that it does not know the length of, it looks for the last tokens of the answer alone.
type tokens struct {
	rest []byte // what was not yet read
	rows bool
}

// read reads a part of an answer, of which last is the end, and returns the tags of what it shows
// to be done.
func (t *tokens) read(part []byte, last bool) (tags []string) {
	t.rest = append(t.rest, part...)
	if !t.rows {
		tags = t.walk()
	}
	if t.rows {
		// What a procedure ends with, such as sp_executesql: the last of its statements, the
		// status, itself.
		const longest = doneLength + statusLength + doneLength
		t.rest = t.rest[max(0, len(t.rest)-longest):]
		if last {
			tags = append(tags, t.ending(longest, doneLength)...)
		}
	}
	if last {
		*t = tokens{}
	}
	return tags
}

// walk reads whole tokens until their end, or until rows.
func (t *tokens) walk() (tags []string) {
	for {
		n, known := tokenLength(t.rest)
		if t.rows = !known; t.rows || n > len(t.rest) {
			return tags
		}
		if tag := tagOf(t.rest[:n]); tag != "" {
			tags = append(tags, tag)
		}
		t.rest = t.rest[n:]
	}
}

// ending returns the tags of the first of the lengths that whole tokens have at the end.
func (t *tokens) ending(lengths ...int) []string {
	for _, n := range lengths {
		if n > len(t.rest) {
			continue
		}
		end := tokens{rest: t.rest[len(t.rest)-n:]}
		if tags := end.walk(); len(end.rest) == 0 {
			return tags
		}
	}
	return nil
}

// tokenLength is the length of the first token, as far as b has it; known is false if a token has
// no length that can be read without its type.
func tokenLength(b []byte) (n int, known bool) {
	if len(b) == 0 {
		return 1, true
	}
	switch b[0] {
	case tokenReturnStatus:
		return statusLength, true
	case tokenDone, tokenDoneProc, tokenDoneInProc:
		return doneLength, true
	case tokenTableName, tokenColumnInfo, tokenOrder, tokenError, tokenInfo, tokenLoginAck, tokenEnvChange, tokenSSPI:
		if len(b) < 3 {
			return 3, true
		}
		return 3 + int(binary.LittleEndian.Uint16(b[1:])), true
	}
	return 0, false
}

// Changes of the environment.
var environment = map[byte]string{8: "BEGIN", 9: "COMMIT", 10: "ROLLBACK"}

// Commands whose rows are counted.
var commands = map[uint16]string{0xC1: "SELECT", 0xC3: "INSERT", 0xC4: "DELETE", 0xC5: "UPDATE", 0xF0: "INSERT", 0x117: "MERGE"}

// tagOf is what a token shows to be done, such as "UPDATE 1" or "COMMIT", or "".
func tagOf(token []byte) string {
	switch token[0] {
	case tokenEnvChange:
		if len(token) > 3 {
			return environment[token[3]]
		}
	case tokenDone, tokenDoneProc, tokenDoneInProc:
		const (
			failed  = 0x02
			counted = 0x10
		)
		f := fields(token[1:])
		status, command, count := f.short(), f.short(), f.longer()
		if name := commands[command]; name != "" && status&counted != 0 && status&failed == 0 {
			return fmt.Sprintf("%s %d", name, count)
		}
	}
	return ""
}
