package cosmos

import (
	"context"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

// maximum is a stand-in for a container with autoscale throughput, which the embedded
// account does not have.
type maximum struct{ now azcosmos.ThroughputProperties }

func (m *maximum) ReadThroughput(context.Context, *azcosmos.ThroughputOptions) (azcosmos.ThroughputResponse, error) {
	return azcosmos.ThroughputResponse{ThroughputProperties: &m.now}, nil
}

func (m *maximum) ReplaceThroughput(_ context.Context, p azcosmos.ThroughputProperties, _ *azcosmos.ThroughputOptions) (azcosmos.ThroughputResponse, error) {
	m.now = p
	return azcosmos.ThroughputResponse{ThroughputProperties: &m.now}, nil
}

// TestMaximum: with autoscale throughput, the maximum is changed.
func TestMaximum(t *testing.T) {
	m := &maximum{azcosmos.NewAutoscaleThroughputProperties(4000)}
	target := &Target{cfg: Config{Unit: 500}, throughput: m}
	if n, err := target.Instances(t.Context()); err != nil || n != 8 {
		t.Errorf("%d units, %v; want 8", n, err)
	}
	if err := target.Scale(t.Context(), 9); err == nil {
		t.Error("4,500 RU/s is taken for a maximum")
	}
	if err := target.Scale(t.Context(), 10); err != nil {
		t.Error(err)
	}
	if ru, ok := m.now.AutoscaleMaxThroughput(); !ok || ru != 5000 {
		t.Errorf("the maximum is %d, %t", ru, ok)
	}
}
