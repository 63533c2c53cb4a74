package eventhub

import (
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice/driver"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/proof/need"
)

// proxy stands before a broker and can be frozen: connections stay, and
// nothing comes through any more.
type proxy struct {
	net.Listener
	target string
	work   sync.WaitGroup

	mu     sync.Mutex
	frozen bool
	pairs  []pair
}

type pair struct{ client, server net.Conn }

func newProxy(t testing.TB, target string) *proxy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{Listener: l, target: target}
	p.work.Go(p.serve)
	t.Cleanup(func() {
		l.Close()
		p.mu.Lock()
		for _, c := range p.pairs {
			c.client.Close()
			if c.server != nil {
				c.server.Close()
			}
		}
		p.mu.Unlock()
		p.work.Wait()
	})
	return p
}

func (p *proxy) serve() {
	for {
		client, err := p.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		c := pair{client: client}
		if !p.frozen {
			if c.server, err = net.Dial("tcp", p.target); err != nil {
				client.Close()
				p.mu.Unlock()
				continue
			}
			p.work.Go(func() { p.forward(c.server, client) })
			p.work.Go(func() { p.forward(client, c.server) })
		}
		p.pairs = append(p.pairs, c)
		p.mu.Unlock()
	}
}

func (p *proxy) forward(to, from net.Conn) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		p.mu.Lock()
		frozen := p.frozen
		p.mu.Unlock()
		if frozen {
			_, _ = io.Copy(io.Discard, from) // swallowed from here on
			return
		}
		if n > 0 {
			_, _ = to.Write(buf[:n])
		}
		if err != nil {
			to.Close()
			return
		}
	}
}

// freeze swallows what comes over the connections there are, and over new ones
// until thaw.
func (p *proxy) freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frozen = true
}

// thaw lets new connections through.
func (p *proxy) thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frozen = false
}

// checkNoLink checks the error of a link that a frozen broker does not open: the time has passed,
// or the client's heartbeat found the silence before.
func checkNoLink(t *testing.T, err error, partition string) {
	t.Helper()
	want := "connection lost: the broker stopped answering"
	if !strings.Contains(err.Error(), want) {
		want = "no link within 300ms"
	}
	checkMessage(t, err.Error(), "hub flights, partition "+partition+": "+want)
}

// A broker that stops answering blocks no call for longer than the timeout,
// nor for good.
func TestBrokerStopsAnswering(t *testing.T) {
	need.RealTime(t)
	receivers(t, func(t *testing.T) {
		b := newBroker(t, nil)
		b.send("0", 0, 10, 0)
		p := newProxy(t, b.Addr())
		s := b.sourceOf(strings.Replace(b.ConnectionString(), b.Addr(), p.Addr().String(), 1), &Config{Timeout: 300 * time.Millisecond})
		questions := map[string]func() error{
			"bounds":   func() error { return second(s.Bounds(b.now, "0")) },
			"describe": func() error { return second(s.Describe(b.now)) },
			"open":     func() error { return second(s.Open(b.now, "0", driver.Origin, 1)) },
			"seek":     func() error { return second(s.Seek(b.now, "0", sluice.Ago(time.Hour), 1)) },
		}
		for what, ask := range questions {
			// Over a link of its own, which is frozen next. The timeout is so short
			// that a busy machine may need another go.
			b.eventually(what, func() bool { return ask() == nil })
			p.freeze()
			began := time.Now()
			err := ask()
			if err == nil || time.Since(began) > 20*time.Second {
				t.Fatalf("%s: %v after %v", what, err, time.Since(began))
			}
			if what == "open" { // which sends no management request
				checkNoLink(t, err, "0")
			} else {
				checkMessage(t, err.Error(), "no answer within 300ms")
			}
			p.thaw()
			b.eventually(what+" again", func() bool { return ask() == nil })
		}
		// Where a link can't be opened, that is said, too.
		b.eventually("bounds", func() bool { return questions["bounds"]() == nil })
		b.eventually("attach", func() bool {
			l, _, err := s.attach(b.now, "1", azeventhubs.StartPosition{}, 1, 10)
			if err == nil {
				l.close(b.now)
			}
			return err == nil
		})
		p.freeze()
		_, _, err := s.attach(b.now, "1", azeventhubs.StartPosition{}, 1, 10)
		if err == nil || errors.Is(err, driver.ErrRefused) {
			t.Fatalf("attach: %v", err)
		}
		checkNoLink(t, err, "1")
		began := time.Now()
		s.Close(b.now)
		if time.Since(began) > 20*time.Second {
			t.Errorf("close took %v", time.Since(began))
		}
		b.producer.Close(b.now)
		b.eventually("all goroutines ended", func() bool { return len(ours()) == 0 })
	})
}
