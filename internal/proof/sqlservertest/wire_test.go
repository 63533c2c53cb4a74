//go:build unix

package sqlservertest

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf16"
)

// message makes a message of packets that are not longer than most, the first of which has more
// flags.
func message(kind, flags byte, most int, body []byte) (wire []byte) {
	for first := true; first || len(body) > 0; first = false {
		n := min(len(body), most-headerLength)
		head := make([]byte, headerLength)
		head[0] = kind
		binary.BigEndian.PutUint16(head[2:], uint16(headerLength+n))
		if first {
			head[1] = flags
		}
		if n == len(body) {
			head[1] |= statusLast
		}
		wire = append(append(wire, head...), body[:n]...)
		body = body[n:]
	}
	return wire
}

func wide(text string) (b []byte) {
	for _, unit := range utf16.Encode([]rune(text)) {
		b = binary.LittleEndian.AppendUint16(b, unit)
	}
	return b
}

// headed puts all headers before a body: one, of the transaction.
func headed(body ...[]byte) []byte {
	b := binary.LittleEndian.AppendUint32(nil, 22)
	b = binary.LittleEndian.AppendUint32(b, 18)
	b = append(b, 2, 0, 1, 2, 3, 4, 5, 6, 7, 8, 1, 0, 0, 0)
	return append(b, slices.Concat(body...)...)
}

// executed is a call of sp_executesql with one argument beside the text, as go-mssqldb makes it;
// or, if inChunks, with a text of the type nvarchar(max).
func executed(text string, inChunks bool) []byte {
	const argument = "\x03@\x00p\x001\x00\x00\x26\x04\x04\x01\x00\x00\x00"
	b := []byte("\xff\xff\x0a\x00\x00\x00\x00\x00\xe7")
	if !inChunks {
		b = append(b, 0x40, 0x1f, 9, 4, 0xd0, 0, 0x34)
		b = binary.LittleEndian.AppendUint16(b, uint16(len(wide(text))))
		return append(append(b, wide(text)...), argument...)
	}
	b = append(b, 0xff, 0xff, 9, 4, 0xd0, 0, 0x34)
	b = append(b, "\xfe\xff\xff\xff\xff\xff\xff\xff"...)
	for chunk := range slices.Chunk(wide(text), 1001) { // cuts through a character
		b = append(binary.LittleEndian.AppendUint32(b, uint32(len(chunk))), chunk...)
	}
	return append(b, "\x00\x00\x00\x00"+argument...)
}

func prelogin(encryption byte) []byte {
	return append([]byte("\x00\x00\x0b\x00\x06\x01\x00\x11\x00\x01\xff\x01\x02\x03\x04\x05\x06"), encryption)
}

// TestRequests: which statements a client's message executes, and whether one is a COMMIT.
func TestRequests(t *testing.T) {
	long := "INSERT INTO t VALUES (N'" + strings.Repeat("commit 😀", 5000) + "'); COMMIT"
	for name, c := range map[string]struct {
		wire       []byte
		statements []string
		commit     bool
	}{
		"batch":                  {message(packetBatch, 0, 4096, headed(wide("SELECT 1"))), []string{"SELECT 1"}, false},
		"batch of many packets":  {message(packetBatch, 8, 512, headed(wide(long))), []string{long}, true},
		"batch with commit":      {message(packetBatch, 0, 4096, headed(wide("IF @@TRANCOUNT > 0 COMMIT"))), []string{"IF @@TRANCOUNT > 0 COMMIT"}, true},
		"batch given up":         {message(packetBatch, statusIgnore, 4096, headed(wide("COMMIT"))), nil, false},
		"sp_executesql":          {message(packetProcedure, 0, 4096, headed(executed("SELECT @p1", false))), []string{"SELECT @p1"}, false},
		"sp_executesql, long":    {message(packetProcedure, 0, 4096, headed(executed(long, true))), []string{long}, true},
		"another procedure":      {message(packetProcedure, 0, 4096, headed([]byte("\x02\x00a\x00b\x00\x00\x00"))), []string{"EXEC ab"}, false},
		"a procedure's number":   {message(packetProcedure, 0, 4096, headed([]byte("\xff\xff\x0c\x00\x00\x00"))), []string{"EXEC procedure 12"}, false},
		"begin":                  {message(packetTransaction, 8, 4096, headed([]byte("\x05\x00\x02\x00"))), []string{"BEGIN TRANSACTION"}, false},
		"commit":                 {message(packetTransaction, 0, 4096, headed([]byte("\x07\x00\x00\x00"))), []string{"COMMIT"}, true},
		"rollback":               {message(packetTransaction, 0, 4096, headed([]byte("\x08\x00\x00\x00"))), []string{"ROLLBACK"}, false},
		"attention":              {message(packetAttention, 0, 4096, nil), nil, false},
		"login":                  {message(packetLogin, 0, 4096, wide("COMMIT")), nil, false},
		"prelogin":               {message(packetPrelogin, 0, 4096, prelogin(2)), nil, false},
		"bulk copy with no text": {message(packetBulk, 0, 4096, wide("COMMIT")), nil, false},
	} {
		w := newWire()
		request, err := w.Request(bufio.NewReader(iotest.OneByteReader(bytes.NewReader(c.wire))))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !bytes.Equal(request.Bytes, c.wire) || !slices.Equal(request.Statements, c.statements) || request.Commit != c.commit {
			t.Errorf("%s: %d bytes, statements %q, commit %t", name, len(request.Bytes), request.Statements, request.Commit)
		}
		if request.Answered != (name != "attention") {
			t.Errorf("%s: answered %t", name, request.Answered)
		}
	}
}

// TestBulkCopy: the packets of a bulk copy pass one by one; the last of them is answered.
func TestBulkCopy(t *testing.T) {
	whole := message(packetBulk, 0, 512, make([]byte, 1200))
	r, w := bufio.NewReader(bytes.NewReader(whole)), newWire()
	var passed []byte
	for i := range 3 {
		request, err := w.Request(r)
		if err != nil || request.Answered != (i == 2) {
			t.Fatalf("packet %d: answered %t, %v", i, request.Answered, err)
		}
		passed = append(passed, request.Bytes...)
	}
	if !bytes.Equal(passed, whole) {
		t.Errorf("%d bytes passed of %d", len(passed), len(whole))
	}
}

// TestRequestsRefused: what the proxy cannot read ends the connection.
func TestRequestsRefused(t *testing.T) {
	first := message(packetBatch, 0, 512, headed(make([]byte, 1000)))[:512]
	for want, wire := range map[string][]byte{
		"encrypt=disable": message(packetPrelogin, 0, 4096, prelogin(0)),
		"type 22":         append([]byte("\x16\x03\x01\x00\x30\x01\x00\x00"), make([]byte, 300)...),
		"7 bytes":         []byte("\x01\x01\x00\x07\x00\x00\x00\x00"),
		"within":          append(first, message(packetAttention, 0, 512, nil)...),
		"EOF":             first,
		"more than":       bytes.Repeat(message(packetBatch, 0, 65535, make([]byte, 65535))[:65535], maxMessage/65535+1),
	} {
		if _, err := newWire().Request(bufio.NewReader(bytes.NewReader(wire))); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want an error with %q", err, want)
		}
	}
}

// TestCommits: a COMMIT may stand anywhere in a text, but not in quotes, comments or names.
func TestCommits(t *testing.T) {
	for _, sql := range []string{"COMMIT", " commit tran", "INSERT INTO t VALUES ('it''s') COMMIT", "SELECT 1;COMMIT;", "/* x */COMMIT--", "BEGIN TRY COMMIT END TRY BEGIN CATCH END CATCH"} {
		if !commits(sql) {
			t.Errorf("%q commits", sql)
		}
	}
	for _, sql := range []string{"", "SELECT 'COMMIT'", "SELECT [COMMIT]", `SELECT "COMMIT"`, "SELECT 1 -- COMMIT", "/* COMMIT\n COMMIT */", "SELECT @commit", "EXEC commit_all", "SELECT * FROM #commit"} {
		if commits(sql) {
			t.Errorf("%q does not commit", sql)
		}
	}
}

func done(token byte, status, command uint16, count uint64) []byte {
	b := binary.LittleEndian.AppendUint16([]byte{token}, status)
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint16(b, command), count)
}

func sized(token byte, body string) []byte {
	return append(binary.LittleEndian.AppendUint16([]byte{token}, uint16(len(body))), body...)
}

// answered reads a whole answer after that to PRELOGIN, and returns its tags.
func answered(t testing.TB, most int, tokens ...[]byte) (tags []string) {
	t.Helper()
	w := newWire()
	answer := message(packetAnswer, 0, most, slices.Concat(tokens...))
	r := bufio.NewReader(bytes.NewReader(append(message(packetAnswer, 0, most, done(tokenDone, 0x10, 0xC5, 9)), answer...)))
	var passed []byte
	for answers := 0; answers < 2; {
		a, err := w.Answer(r)
		if err != nil {
			t.Fatal(err)
		}
		if answers == 1 {
			passed, tags = append(passed, a.Bytes...), append(tags, a.Tags...)
		} else if len(a.Tags) > 0 {
			t.Errorf("the answer to PRELOGIN has the tags %q", a.Tags)
		}
		if a.Done {
			answers++
		}
	}
	if !bytes.Equal(passed, answer) {
		t.Errorf("%d bytes passed of %d", len(passed), len(answer))
	}
	return tags
}

// TestAnswers: what an answer shows to be done, however its packets divide its tokens.
func TestAnswers(t *testing.T) {
	const rows = "\x81\x01\x00\x00\x00\x00\x00\x00\x00\x38\x00\xd1\x01\x00\x00\x00\xd1\x01\x00\x00\x00"
	status := []byte{tokenReturnStatus, 0, 0, 0, 0}
	for name, c := range map[string]struct {
		tokens [][]byte
		want   []string
	}{
		"commit":             {[][]byte{sized(tokenEnvChange, "\x09\x00\x08abcdefgh"), done(tokenDone, 0, 0xD5, 0)}, []string{"COMMIT"}},
		"commit that failed": {[][]byte{sized(tokenError, strings.Repeat("COMMIT", 900)), sized(tokenEnvChange, "\x0a\x00\x08abcdefgh"), done(tokenDone, 2, 0xD5, 0)}, []string{"ROLLBACK"}},
		"begin":              {[][]byte{sized(tokenEnvChange, "\x08\x08abcdefgh\x00"), done(tokenDone, 0, 0xD4, 0)}, []string{"BEGIN"}},
		"update":             {[][]byte{sized(tokenInfo, "note"), done(tokenDoneInProc, 0x11, 0xC5, 0), status, done(tokenDoneProc, 0, 0xE0, 0)}, []string{"UPDATE 0"}},
		"two statements":     {[][]byte{done(tokenDone, 0x11, 0xC4, 3), done(tokenDone, 0x10, 0xC3, 1<<32)}, []string{"DELETE 3", "INSERT 4294967296"}},
		"failed update":      {[][]byte{sized(tokenError, "wrong"), done(tokenDone, 0x12, 0xC5, 0)}, nil},
		"rows of a batch":    {[][]byte{[]byte(rows), done(tokenDone, 0x10, 0xC1, 2)}, []string{"SELECT 2"}},
		"rows of a call":     {[][]byte{[]byte(rows), done(tokenDoneInProc, 0x11, 0xC5, 2), status, done(tokenDoneProc, 0, 0xE0, 0)}, []string{"UPDATE 2"}},
		"update, then rows":  {[][]byte{done(tokenDoneInProc, 0x11, 0xC5, 1), []byte(rows), []byte(strings.Repeat(rows, 1000)), done(tokenDoneInProc, 0x11, 0xC1, 2), status, done(tokenDoneProc, 0, 0xE0, 0)}, []string{"UPDATE 1", "SELECT 2"}},
	} {
		for _, most := range []int{9, 10, 13, 100, 4096} {
			if tags := answered(t, most, c.tokens...); !slices.Equal(tags, c.want) {
				t.Errorf("%s in packets of %d bytes: %q, want %q", name, most, tags, c.want)
			}
		}
	}
	if _, err := newWire().Answer(bufio.NewReader(bytes.NewReader(message(packetBatch, 0, 512, nil)))); err == nil {
		t.Error("a batch is no answer")
	}
}

// FuzzRequests: whatever a client sends, what passes on is what came, in order, and nothing else.
func FuzzRequests(f *testing.F) {
	f.Add(slices.Concat(message(packetPrelogin, 0, 4096, prelogin(2)), message(packetLogin, 0, 4096, wide("login")), message(packetBatch, 8, 64, headed(wide("SELECT 'COMMIT'; COMMIT")))))
	f.Add(slices.Concat(message(packetProcedure, 0, 4096, headed(executed("SELECT @p1", false))), message(packetProcedure, 0, 4096, headed(executed("SELECT @p1", true))), message(packetTransaction, 0, 4096, headed([]byte("\x07\x00\x00\x00")))))
	f.Add(slices.Concat(message(packetBulk, 0, 16, make([]byte, 20)), message(packetAttention, 0, 512, nil), message(packetProcedure, 0, 4096, headed([]byte("\x02\x00a\x00b\x00\x00\x00")))))
	f.Fuzz(func(t *testing.T, sent []byte) {
		w, r := newWire(), bufio.NewReader(bytes.NewReader(sent))
		var passed []byte
		for {
			request, err := w.Request(r)
			if err != nil {
				break
			}
			if len(request.Bytes) < headerLength || len(request.Statements) > 1 || request.Commit && len(request.Statements) == 0 {
				t.Fatalf("%d bytes, %d statements, commit %t", len(request.Bytes), len(request.Statements), request.Commit)
			}
			passed = append(passed, request.Bytes...)
		}
		if !bytes.HasPrefix(sent, passed) {
			t.Fatalf("%x passed of %x", passed, sent)
		}
	})
}

// FuzzAnswers: whatever a server answers passes on as it came; what is kept of it is bounded, and
// another division into packets gives the same tags.
func FuzzAnswers(f *testing.F) {
	f.Add(slices.Concat(sized(tokenEnvChange, "\x09\x00\x08abcdefgh"), done(tokenDone, 0, 0xD5, 0)), uint16(9))
	f.Add(slices.Concat(done(tokenDoneInProc, 0x11, 0xC5, 1), []byte("\x81 rows"), done(tokenDoneInProc, 0x11, 0xC1, 2), []byte{tokenReturnStatus, 0, 0, 0, 0}, done(tokenDoneProc, 0, 0xE0, 0)), uint16(40))
	f.Add(sized(tokenError, "no end"), uint16(3))
	f.Fuzz(func(t *testing.T, body []byte, most uint16) {
		if len(body) > 60_000 {
			return
		}
		whole := answered(t, 65535, body)
		if parts := answered(t, headerLength+1+int(most)%4096, body); !slices.Equal(parts, whole) {
			t.Fatalf("%q of %q", parts, whole)
		}
		var tk tokens
		for part := range slices.Chunk(body, 100) {
			tk.read(part, false)
			if len(tk.rest) > 3+65535+100 {
				t.Fatalf("%d bytes are kept", len(tk.rest))
			}
		}
	})
}
