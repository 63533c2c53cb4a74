package postgres

import (
	"errors"
	"os"
	"syscall"
	"time"
)

// tcpUserTimeout is TCP_USER_TIMEOUT of linux/tcp.h.
const tcpUserTimeout = 18

// limitUnacknowledged makes the system close a connection whose data is not acknowledged for d,
// which otherwise takes a quarter of an hour (tcp_retries2).
func limitUnacknowledged(c syscall.RawConn, d time.Duration) error {
	var set error
	err := c.Control(func(fd uintptr) {
		set = os.NewSyscallError("setsockopt", syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(d.Milliseconds())))
	})
	return errors.Join(err, set)
}
