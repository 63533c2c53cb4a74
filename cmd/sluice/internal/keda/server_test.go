package keda

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/autoscale/config"
	"github.com/sluice-go/sluice/autoscale/source/lag"
	"github.com/sluice-go/sluice/cmd/sluice/internal/keda/externalscaler"
	"github.com/sluice-go/sluice/driver"
)

var flights = sluice.Group{Topic: "flights", Name: "$Default"}

// hub has two partitions with ten events each, of which the second may be silent.
type hub struct {
	driver.Source
	silent atomic.Pointer[error]
	hangs  atomic.Bool // until the context ends
}

func (h *hub) Describe(context.Context) (sluice.Topic, error) {
	return sluice.Topic{Group: flights, Incarnation: "1", Partitions: []string{"0", "1"}}, nil
}

func (h *hub) Bounds(ctx context.Context, partition string) (driver.Bounds, error) {
	if h.hangs.Load() {
		<-ctx.Done()
		return driver.Bounds{}, ctx.Err()
	}
	if err := h.silent.Load(); partition == "1" && err != nil {
		return driver.Bounds{}, *err
	}
	return driver.Bounds{First: 0, Last: sluice.Position{Sequence: 9}}, nil
}

// done are checkpoints of a consumer that has processed everything.
type done struct{}

func (done) Read(context.Context, sluice.Group) ([]sluice.Checkpoint, error) {
	at := sluice.Position{Sequence: 9}
	return []sluice.Checkpoint{{Partition: "0", Position: at}, {Partition: "1", Position: at}}, nil
}

func serverOf(h *hub) *Server {
	source := lag.New(h, done{}, flights, nil)
	return &Server{resources: map[string]*resource{"flights": newResource(config.Lag{Name: "flights", Target: 1000, Source: source})},
		log: slog.New(slog.DiscardHandler), stopped: context.Background()}
}

// answers returns the errors of both questions about the lag.
func answers(t *testing.T, s *Server) []error {
	t.Helper()
	ref := &externalscaler.ScaledObjectRef{Name: "flights", Namespace: "default"}
	is, err := s.IsActive(t.Context(), ref)
	values, also := s.GetMetrics(t.Context(), &externalscaler.GetMetricsRequest{ScaledObjectRef: ref, MetricName: "sluice-lag-flights"})
	if err == nil && (is.Result || values.MetricValues[0].MetricValueFloat != 0) {
		t.Errorf("nothing is left to do, and the answers are %v, %v", is, values)
	}
	return []error{err, also}
}

// TestSilentPartition: if a partition does not answer, there is no lag, whether it has
// answered before or not. In what it holds may be all events, so that the lag of the others,
// 0, would stop every instance.
func TestSilentPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hub{}
		s := serverOf(h)
		long := errors.New("no\nanswer " + strings.Repeat("ö", 10_000))
		for _, silent := range []*error{&long, nil, &long} {
			h.silent.Store(silent)
			for _, err := range answers(t, s) {
				switch text := status.Convert(err).Message(); {
				case silent == nil && err != nil:
					t.Errorf("both partitions answer: %v", err)
				case silent != nil && (status.Code(err) != codes.Unavailable || !strings.HasPrefix(text, "sluice: lag of flights: bounds of partition 1: no answer ö")):
					t.Errorf("a partition is silent: %v", err)
				case len(text) > 600:
					t.Errorf("the error has %d bytes", len(text))
				}
			}
			time.Sleep(keptFor)
		}
	})
}

// TestHangingHub: every request ends in time, though they wait for each other.
func TestHangingHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hub{}
		h.hangs.Store(true)
		s := serverOf(h)
		began, ended := time.Now(), make(chan error)
		const requests = 20
		for range requests {
			go func() {
				_, err := s.IsActive(t.Context(), &externalscaler.ScaledObjectRef{})
				ended <- err
			}()
		}
		for range requests {
			if err := <-ended; status.Code(err) != codes.Unavailable {
				t.Error(err)
			}
		}
		if took := time.Since(began); took != measureTimeout {
			t.Errorf("the requests took %v, want %v", took, measureTimeout)
		}
		h.hangs.Store(false)
		for _, err := range answers(t, s) {
			if err != nil {
				t.Errorf("afterwards: %v", err)
			}
		}
	})
}
