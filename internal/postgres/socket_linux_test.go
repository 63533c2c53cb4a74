package postgres

import (
	"net"
	"syscall"
	"testing"
	"time"
)

// Data that is not acknowledged closes a connection within the lease, not after the system's
// quarter of an hour.
func TestUnacknowledgedData(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	pc, err := Parse("postgres://user@host/db", Settings{LeaseFor: 30 * time.Second, RequestTimeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pc.ConnConfig.DialFunc(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	raw, err := conn.(*socket).Conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var got int
	if cerr := raw.Control(func(fd uintptr) { got, err = syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout) }); cerr != nil || err != nil {
		t.Fatal(cerr, err)
	}
	if want := int((10 * time.Second).Milliseconds()); got != want {
		t.Errorf("TCP_USER_TIMEOUT is %d ms, want %d", got, want)
	}
}
