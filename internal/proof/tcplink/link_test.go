package tcplink

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"
)

// echo is a server that sends back what it gets.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				io.Copy(c, c)
			}()
		}
	}()
	return l.Addr().String()
}

func dial(t *testing.T, l *Link) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", l.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// answers returns nil if the server returns a byte.
func answers(t *testing.T, c net.Conn, within time.Duration) error {
	t.Helper()
	if _, err := c.Write([]byte{1}); err != nil {
		return err
	}
	c.SetReadDeadline(time.Now().Add(within))
	_, err := io.ReadFull(c, make([]byte, 1))
	return err
}

// accepted waits until the link has n connections: the kernel connects a client before the link
// accepts it.
func accepted(t *testing.T, l *Link, n int) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for late := time.After(time.Minute); ; {
		l.mu.Lock()
		has := len(l.pairs)
		l.mu.Unlock()
		if has == n {
			return
		}
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("the link has %d connections, want %d", has, n)
		}
	}
}

func TestLinkReset(t *testing.T) {
	l := NewTest(t, echo(t))
	c := dial(t, l)
	if err := answers(t, c, time.Minute); err != nil {
		t.Fatal(err)
	}
	if n := l.Reset(); n != 1 {
		t.Errorf("%d connections were reset, want 1", n)
	}
	if err := answers(t, c, time.Minute); !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
		t.Errorf("error is %v, want a reset", err)
	}
	if err := answers(t, dial(t, l), time.Minute); err != nil {
		t.Errorf("a new connection: %v", err)
	}
}

func TestLinkSwallows(t *testing.T) {
	l := NewTest(t, echo(t))
	old := dial(t, l)
	if err := answers(t, old, time.Minute); err != nil {
		t.Fatal(err)
	}
	l.Swallow()
	fresh := dial(t, l)
	for name, c := range map[string]net.Conn{"old": old, "new": fresh} {
		var late net.Error
		if err := answers(t, c, 50*time.Millisecond); !errors.As(err, &late) || !late.Timeout() {
			t.Errorf("%s connection: error is %v, want silence", name, err)
		}
	}
	accepted(t, l, 2)
	if n := l.Recover(); n != 2 {
		t.Errorf("%d connections were cut, want 2", n)
	}
	for name, c := range map[string]net.Conn{"old": old, "new": fresh} {
		if err := answers(t, c, time.Minute); err == nil {
			t.Errorf("%s connection: works again, with bytes missing", name)
		}
	}
	if err := answers(t, dial(t, l), time.Minute); err != nil {
		t.Errorf("a connection after it: %v", err)
	}
}

func TestLinkSwallowsNewest(t *testing.T) {
	l := NewTest(t, echo(t))
	old := dial(t, l)
	if err := answers(t, old, time.Minute); err != nil {
		t.Fatal(err)
	}
	silent := dial(t, l)
	if err := answers(t, silent, time.Minute); err != nil {
		t.Fatal(err)
	}
	l.SwallowNewest(1)
	var late net.Error
	if err := answers(t, silent, 50*time.Millisecond); !errors.As(err, &late) || !late.Timeout() {
		t.Errorf("the newest connection: error is %v, want silence", err)
	}
	for name, c := range map[string]net.Conn{"old": old, "new": dial(t, l)} {
		if err := answers(t, c, time.Minute); err != nil {
			t.Errorf("%s connection: %v", name, err)
		}
	}
}
