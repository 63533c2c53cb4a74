package kafka

import (
	"context"
	"net"
	"sync"
	"testing"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/internal/proof/suite"
	"github.com/sluice-go/sluice/internal/proof/tcplink"
	"github.com/sluice-go/sluice/storetest"

	"github.com/twmb/franz-go/pkg/kfake"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	conformance(t, func(t testing.TB) *cluster {
		c, _ := newFake(t)
		return c
	})
}

// conformance runs the cases of the conformance suite beside each other, each with a cluster's
// topic of its own.
func conformance(t *testing.T, topic func(t testing.TB) *cluster) {
	suite.Parallel(t, func(t *testing.T) {
		storetest.TestSource(t, func(t testing.TB) storetest.SourceHarness { return harness(topic(t)) })
	})
}

// A cluster is silent if all of its brokers are, also those that a client has not been connected
// to.
func TestSilentCluster(t *testing.T) {
	need.RealTime(t)
	cases := suite.Cases(func(t *testing.T) {
		storetest.TestSource(t, func(t testing.TB) storetest.SourceHarness {
			c, _ := newFake(t, kfake.NumBrokers(5))
			return harness(c)
		})
	})
	for _, c := range cases {
		if c.Name == "SilentServer" {
			c.Run(t)
			return
		}
	}
	t.Error("the suite has no such case")
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
	mu     sync.Mutex
	all    map[string]*tcplink.Link // by the broker's address
	silent bool                     // all brokers, also one whose link is still to be made
}

func (l *links) dialer(t testing.TB) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		l.mu.Lock()
		if l.all == nil {
			l.all = map[string]*tcplink.Link{}
		}
		if l.all[address] == nil {
			l.all[address] = tcplink.NewTest(t, address)
			if l.silent {
				l.all[address].Swallow()
			}
		}
		through := l.all[address].Addr()
		l.mu.Unlock()
		return new(net.Dialer).DialContext(ctx, network, through)
	}
}

// silence makes all brokers of the cluster silent.
func (l *links) silence(testing.TB) (end func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.silent = true
	for _, link := range l.all {
		link.Swallow()
	}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.silent = false
		for _, link := range l.all {
			link.Recover()
		}
	}
}
