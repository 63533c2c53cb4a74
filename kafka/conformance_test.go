package kafka

import (
	"context"
	"net"
	"sync"
	"testing"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/tcplink"
	"github.com/sluice-go/sluice/storetest"
)

func TestConformance(t *testing.T) {
	storetest.TestSource(t, func(t testing.TB) storetest.SourceHarness {
		c, _ := newFake(t)
		return harness(c)
	})
}

// harness returns the suite's harness for a cluster. Its sources connect through links, which can
// fall silent.
func harness(c *cluster) storetest.SourceHarness {
	links := &links{}
	return storetest.SourceHarness{
		Connect: func(t testing.TB) driver.Source {
			s, err := c.open(t, &Config{Dial: links.dialer(t)}).Source(c.topic, "test", nil)
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
		Append: func(ctx context.Context, partition string, events ...*driver.Event) error {
			return c.append(ctx, partition, events...)
		},
		Trim:     c.trim,
		Recreate: c.recreate,
		Gap:      c.gap,
		Silence:  links.silence,
		Features: storetest.SourceFeatures{NoEpochs: true, SharedOffsets: true, TextProperties: true, Headers: true, Keys: true, Nulls: true, Created: true},
	}
}

// links are a link to each broker, through which connections go.
type links struct {
	mu  sync.Mutex
	all map[string]*tcplink.Link // by the broker's address
}

func (l *links) dialer(t testing.TB) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		l.mu.Lock()
		if l.all == nil {
			l.all = map[string]*tcplink.Link{}
		}
		if l.all[address] == nil {
			l.all[address] = tcplink.NewTest(t, address)
		}
		through := l.all[address].Addr()
		l.mu.Unlock()
		return new(net.Dialer).DialContext(ctx, network, through)
	}
}

func (l *links) silence(t testing.TB) (end func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var ends []func()
	for _, link := range l.all {
		ends = append(ends, link.Silence(t))
	}
	return func() {
		for _, end := range ends {
			end()
		}
	}
}
