package roundtrips

import (
	"bufio"
	"io"
	"net"
	"testing"
)

// A line of any number of writes is one round trip, and so is its answer of any number of reads.
func TestCounter(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		server, err := l.Accept()
		if err != nil {
			return
		}
		defer server.Close()
		for lines := bufio.NewReader(server); ; {
			line, err := lines.ReadString('\n')
			if err != nil {
				return
			}
			io.WriteString(server, line)
		}
	}()
	var c Counter
	conn, err := c.Dial(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for range 3 {
		for _, part := range []string{"a ", "line", "\n"} {
			io.WriteString(conn, part)
		}
		for range "a line\n" {
			if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if trips, bytes := c.Take(); trips != 3 || bytes != 3*7 {
		t.Errorf("%d round trips, %d bytes", trips, bytes)
	}
	if trips, bytes := c.Take(); trips != 0 || bytes != 0 {
		t.Errorf("%d round trips, %d bytes after the last", trips, bytes)
	}
}
