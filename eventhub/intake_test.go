package eventhub

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/driver"
)

// countingConn counts the bytes that are read from it.
type countingConn struct {
	net.Conn
	bytes *atomic.Int64
}

func (c countingConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.bytes.Add(int64(n))
	return n, err
}

// counted returns a configuration whose connections are counted.
func (b *broker) counted(cfg Config) (*Config, *atomic.Int64) {
	bytes := new(atomic.Int64)
	cfg.WebSocket = func(ctx context.Context, _ string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", b.Addr())
		return countingConn{conn, bytes}, err
	}
	return &cfg, bytes
}

// Large events after many small ones: the credit was given for small ones, but no more
// than PrefetchBytes come.
func TestPrefetchBytesOfLargeEvents(t *testing.T) {
	receivers(t, func(t *testing.T) {
		const small, large, size, limit = 3000, 64, 256 << 10, 1 << 20
		b := newBroker(t, nil)
		b.send("0", 0, small, 100)
		b.send("0", small, large, size)
		cfg, came := b.counted(Config{PrefetchBytes: limit})
		s := b.source(cfg)
		s.startAfresh = time.Minute // a test that does not run for a moment is no reason to count afresh
		r := b.open(s, "0", driver.Origin, 1).(*reader)
		b.read(r, small, 1000)
		var last int64
		var since time.Time
		b.eventually("no more bytes to come", func() bool {
			if n := came.Load(); n != last {
				last, since = n, time.Now()
			}
			return time.Since(since) > 50*time.Millisecond
		})
		// What is on its way within the SDK is known roughly; without the bound all 16 MiB come.
		const most = small*500 + 2*limit + 2*size
		for read := range large {
			if n := came.Load() - int64(read*size); n > most {
				t.Fatalf("%d bytes came that were not read, %d are allowed", n, most)
			}
			b.read(r, 1, 1)
		}
	})
}

// One event may be larger than PrefetchBytes.
func TestPrefetchBytesOfOneEvent(t *testing.T) {
	receivers(t, func(t *testing.T) {
		b := newBroker(t, nil)
		b.send("0", 0, 5, 1<<20-1000)
		b.read(b.open(b.source(&Config{PrefetchBytes: 1000}), "0", driver.Origin, 1), 5, 5)
	})
}

// A Read returns no more than it should at once, however many events are there.
func TestReadBytes(t *testing.T) {
	receivers(t, func(t *testing.T) {
		const size = 300 << 10
		b := newBroker(t, nil)
		b.send("0", 0, 30, size)
		r := b.open(b.source(nil), "0", driver.Origin, 1)
		for read := 0; read < 30; {
			events, err := r.Read(b.now, 30)
			b.ok("read", err)
			if len(events)*size > driver.ReadBytes {
				t.Fatalf("%d events of 300 KiB at once", len(events))
			}
			read += len(events)
		}
	})
}

// A reader that is full is closed at once, although the broker's answer would come after
// the events that wait.
func TestCloseWhileFull(t *testing.T) {
	receivers(t, func(t *testing.T) {
		b := newBroker(t, nil)
		b.send("0", 0, 64, 256<<10)
		s := b.source(&Config{PrefetchBytes: 100_000, Timeout: time.Minute})
		s.closeTimeout = time.Minute
		r := b.open(s, "0", driver.Origin, 1).(*reader)
		b.read(r, 1, 1)
		b.eventually("the connection is read no more", r.link.intake.full)
		began := time.Now()
		b.ok("close", r.Close(b.now))
		if d := time.Since(began); d >= time.Minute {
			t.Errorf("close took %v", d)
		}
	})
}

// The time without room does not count against the SDK's deadline for a Read.
func TestDeadlineWhileFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer far.Close()
		held := &intake{limit: 10}
		c := &pacedConn{Conn: near, intake: held}
		defer c.Close()
		held.came(10, 10)
		if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		go func() {
			time.Sleep(time.Hour)
			held.returned(1, 5)
			time.Sleep(59 * time.Second)
			far.Write([]byte("x"))
		}()
		if n, err := c.Read(make([]byte, 10)); n != 1 || err != nil {
			t.Errorf("got %d bytes, %v", n, err)
		}
	})
}
