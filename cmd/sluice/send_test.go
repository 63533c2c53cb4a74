package main_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func TestSendFormats(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, c := range map[string]struct {
		files []string
		want  []string
	}{
		"lines":  {[]string{write("a.ndjson", "{\"a\":1}\n{\"a\": 2}\n")}, []string{`{"a":1}`, `{"a": 2}`}},
		"array":  {[]string{write("a.json", `[{"a":1},{"a":"]"}]`)}, []string{`{"a":1}`, `{"a":"]"}`}},
		"table":  {[]string{write("a.csv", "a,b\n1,x y\n-2.50,\n007,\"q\"\"\"\n")}, []string{`{"a":1,"b":"x y"}`, `{"a":-2.50,"b":null}`, `{"a":"007","b":"q\""}`}},
		"two":    {[]string{write("b.ndjson", "{\"a\":1}\n"), write("b.csv", "a\n2\n")}, []string{`{"a":1}`, `{"a":2}`}},
		"empty":  {[]string{write("c.ndjson", "")}, nil},
		"header": {[]string{write("c.csv", "a,b\n")}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			_, connection := serve(t, 1)
			out := must(t, "", nil, append([]string{"send", "--to", connection, "--hub", "flights"}, c.files...)...)
			if !strings.HasPrefix(out, fmt.Sprintf("%d records acknowledged in ", len(c.want))) {
				t.Errorf("it says %s", out)
			}
			if got := lookAt(t, connection).bodies(); !slices.Equal(got, c.want) {
				t.Errorf("sent %q, want %q", got, c.want)
			}
		})
	}
}

// TestSendRefuses sends nothing of an input that is not understood, nor of the files before it.
func TestSendRefuses(t *testing.T) {
	t.Parallel()
	_, connection := serve(t, 1)
	dir := t.TempDir()
	good := writeLines(t, []string{`{"a":1}`})
	for name, c := range map[string]struct{ text, want string }{
		"f.zip":     {"PK\x03\x04\x14\x00\x00\x00", "f.zip: a ZIP archive, which cannot be read: unpack it, and pass the files in it"},
		"f.parquet": {"PAR1\x15\x04\x15\x00\x00", "f.parquet: Parquet, which cannot be read: export its rows as CSV or JSON lines"},
		"utf16.csv": {"\xff\xfea\x00,\x00b\x00\n\x00", "utf16.csv: UTF-16 (by its byte order mark), not utf-8: pass --encoding utf-16 if it is that"},
		"latin.csv": {"k,name\n1,M\xfcller\n", "latin.csv: not UTF-8 (byte 0xFC in line 2): pass --encoding windows-1252 if it is that"},
		"semi.csv":  {"a;b\n1;2\n", "semi.csv: line 1: the header has semicolons between its columns: pass --delimiter ';', or --delimiter , if commas separate them"},
		"page.html": {"<html><body>404</body></html>\n", "page.html: HTML (it begins with"},
		"title.csv": {"Sales, all\na,b,c\n1,2,3\n", "title.csv: line 2: the header has 2 columns, but this line has another number"},
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		report := filepath.Join(dir, name+".report")
		code, out, errs := invoke(t, "", nil, "send", "--to", connection, "--hub", "flights", "--report", report, good, path)
		if code != 1 || out != "" || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, c.want) {
			t.Errorf("%s: exit code %d: %s%s", name, code, out, errs)
		}
		if _, err := os.Stat(report); err == nil {
			t.Errorf("%s: there is a report", name)
		}
	}
	if list := lookAt(t, connection).bodies(); len(list) > 0 {
		t.Errorf("sent %q", list)
	}
}

// TestSendOtherText reads a compressed file with an encoding and a delimiter, and rejects the rows
// that are not in that encoding. The report records the flags.
func TestSendOtherText(t *testing.T) {
	t.Parallel()
	_, connection := serve(t, 1)
	dir := t.TempDir()
	path, report := filepath.Join(dir, "f.csv.gz"), filepath.Join(dir, "report")
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	rows := "k;name\n" + strings.Repeat("1;a\n", 20_000) + "2;M\xfcller\n3;\x81\n" + strings.Repeat("k", 129) + ";long\n4;\x80\n"
	if _, err := w.Write([]byte(rows)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Close(), os.WriteFile(path, packed.Bytes(), 0o600)); err != nil {
		t.Fatal(err)
	}
	code, out, errs := invoke(t, "", nil, "send", "--to", connection, "--hub", "flights", "--key-field", "k", "--encoding", "windows-1252", "--delimiter", ";", "--report", report, path)
	rejected := []string{"line 20003: column 2: not windows-1252 (byte 1)", "line 20004: key field k has 129 characters: the limit is 128"}
	if code != 1 || !strings.HasPrefix(out, "20002 records acknowledged") || !strings.Contains(errs, rejected[0]) || !strings.Contains(errs, rejected[1]) ||
		!strings.Contains(errs, "sluice: 2 records were rejected: all others were sent") {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
	list := lookAt(t, connection).bodies()
	if n := len(list); n != 20_002 || list[n-2] != `{"k":2,"name":"Müller"}` || list[n-1] != `{"k":4,"name":"€"}` {
		t.Errorf("sent %d records, at last %q", n, list[max(0, n-2):])
	}
	code, out, errs = invoke(t, "", nil, "send", "--to", connection, "--resume", report)
	if code != 1 || !strings.HasPrefix(out, "0 records acknowledged") || !strings.Contains(errs, rejected[0]) || !strings.Contains(errs, rejected[1]) {
		t.Errorf("resumed: exit code %d: %s%s", code, out, errs)
	}
}

func TestSendFromStandardInput(t *testing.T) {
	t.Parallel()
	_, connection := serve(t, 2)
	h := lookAt(t, connection)
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	env := []string{"ELSEWHERE=" + connection + ";EntityPath=flights"}
	p := startCommand(t, "", env, in, exec.Command(program.Path(t), "send", "--to", "env:ELSEWHERE", "--key-field", "a"))
	in.Close()
	for i := range 3 {
		// Each arrives though the next one is not written yet.
		fmt.Fprintf(out, "{\"a\":%d}\n", i)
		await(t, "the record", func() bool { return len(h.events()) == i+1 })
	}
	out.Close()
	if code := p.wait(); code != 0 || !strings.HasPrefix(p.out.String(), "3 records acknowledged") {
		t.Errorf("exit code %d: %s", code, p.out.String())
	}
}

// TestSendSpreads gives each partition its share of records without keys.
func TestSendSpreads(t *testing.T) {
	t.Parallel()
	srv, connection := serve(t, 4)
	must(t, "", nil, "send", "--to", connection, "--hub", "flights", writeLines(t, slices.Repeat([]string{"{}"}, 20)))
	for _, e := range lookAt(t, connection).events() {
		if e.sequence >= 5 {
			t.Errorf("event %d of partition %s", e.sequence, e.partition)
		}
	}
	if a := srv.IncomingStats("flights"); a.Messages < 4 {
		t.Errorf("%d batches", a.Messages)
	}
}

func TestSendSaysHowMuchWasAcknowledgedAlsoOnFailure(t *testing.T) {
	t.Parallel()
	_, connection := serve(t, 2)
	lines := make([]string, 50)
	for i := range lines {
		lines[i] = fmt.Sprintf(`{"a":%d}`, i)
	}
	send := func(path string) (int, string, string) {
		return invoke(t, "", nil, "send", "--to", connection, "--hub", "flights", "--key-field", "a", path)
	}
	code, out, errs := send(writeLines(t, append(slices.Clone(lines), `{"b":1}`, `{"a":1}`)))
	if code != 1 || !strings.HasPrefix(out, "51 records acknowledged") || !strings.Contains(errs, ".ndjson: line 51: key field a is missing") ||
		!strings.Contains(errs, "sluice: 1 record was rejected: all others were sent") {
		t.Errorf("a record without its key: exit code %d: %s%s", code, out, errs)
	}
	large := fmt.Sprintf(`{"a":1,"b":%q}`, strings.Repeat("x", 2<<20))
	code, out, errs = send(writeLines(t, append([]string{lines[0], large}, lines[1:]...)))
	if code != 1 || !strings.HasPrefix(out, "50 records acknowledged") || !strings.Contains(errs, ".ndjson: line 2: too large (2097166 bytes)") ||
		!strings.Contains(errs, "sluice: 1 record was too large for the hub: all others were sent") {
		t.Errorf("a large record: exit code %d: %s%s", code, out, errs)
	}
	if n := len(lookAt(t, connection).events()); n != 101 {
		t.Errorf("%d events", n)
	}
}

func TestSendInterrupted(t *testing.T) {
	t.Parallel()
	_, connection := serve(t, 2)
	h := lookAt(t, connection)
	p := start(t, "", nil, "send", "--to", connection, "--hub", "flights", "--rate", "1000", writeLines(t, flights20k(t)))
	await(t, "some records", func() bool { return len(h.events()) > 500 })
	p.signal(os.Interrupt)
	code := p.wait()
	var n int
	if _, err := fmt.Sscanf(p.out.String(), "%d records acknowledged", &n); err != nil || code != 1 || !strings.Contains(p.err.String(), "interrupted") {
		t.Fatalf("exit code %d: %s%s", code, p.out.String(), p.err.String())
	}
	if there := len(h.events()); there < n || n < 500 {
		t.Errorf("%d acknowledged, %d are there", n, there)
	}
}

func TestEmulatorServes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert := filepath.Join(dir, "cert.pem")
	args := []string{"emulator", "serve", "--listen", "127.0.0.1:0", "--tls-listen", "127.0.0.1:0", "--tls-cert-out", cert,
		"--data", filepath.Join(dir, "hub"), "--hub", "flights=3", "--hub", "other=1", "--key", "app=" + secret}
	for round := range 3 {
		p := start(t, "", nil, args...)
		connection := connectionOf(t, p)
		if !strings.Contains(connection, "SharedAccessKeyName=app;SharedAccessKey="+secret) {
			t.Errorf("ready with %s", connection)
		}
		h := lookAt(t, connection)
		if len(h.ids) != 3 {
			t.Errorf("round %d: %d partitions", round, len(h.ids))
		}
		await(t, fmt.Sprintf("the events of round %d", round), func() bool { return len(h.events()) == round*10 })
		must(t, "", nil, "send", "--to", connection, "--hub", "flights", writeLines(t, slices.Repeat([]string{"{}"}, 10)))
		if pem, err := os.ReadFile(cert); err != nil || !strings.Contains(string(pem), "BEGIN CERTIFICATE") {
			t.Errorf("certificate: %v", err)
		}
		switch round {
		case 0:
			p.kill() // what was acknowledged is there again
		case 1:
			p.signal(os.Interrupt)
		case 2:
			p.signal(syscall.SIGTERM)
		}
		if code := p.wait(); round > 0 && code != 0 {
			t.Errorf("round %d: exit code %d: %s", round, code, p.err.String())
		}
		if strings.Contains(p.err.String(), secret) {
			t.Errorf("logs the key: %s", p.err.String())
		}
	}
}
