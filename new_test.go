package sluice_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine/enginetest"
	"github.com/sluice-go/sluice/sluicetest"
)

// limited is a lease store that grants leases of some lengths only.
type limited struct{ *enginetest.Ledger }

func (limited) LeaseLimits() (shortest, longest time.Duration) {
	return 15 * time.Second, time.Minute
}

// What cannot work is refused at once, in a line that says what to change.
func TestNewRefuses(t *testing.T) {
	hub, leases, store := sluicetest.NewHub(enginetest.Group, 1), enginetest.NewLedger(), &sluicetest.Store{}
	delivery := sluice.Transactional(store, enginetest.Nothing)
	sink := enginetest.NewWarehouse(t)
	type record = func(context.Context, *sluice.Event) ([]*sluice.Event, error)
	for _, test := range []struct {
		source   driver.Source
		leases   driver.LeaseStore
		delivery sluice.Delivery
		cfg      sluice.Config
		want     string // in the error; empty: it is accepted
	}{
		{hub, limited{leases}, delivery, sluice.Config{}, ""},
		{hub, limited{leases}, delivery, sluice.Config{LeaseFor: time.Minute}, ""},
		{hub, limited{leases}, delivery, sluice.Config{LeaseFor: 2 * time.Minute}, "lease of 2m0s: the lease store grants leases of 15s to 1m0s"},
		{hub, limited{leases}, delivery, sluice.Config{LeaseFor: 10 * time.Second}, "lease of 10s"},
		{hub, leases, delivery, sluice.Config{LeaseFor: 30}, "is the unit missing"},
		{nil, leases, delivery, sluice.Config{}, "the source is nil"},
		{hub, nil, delivery, sluice.Config{}, "nil"},
		{hub, leases, nil, sluice.Config{}, "the delivery is nil"},
		{hub, leases, sluice.Transactional(store, nil), sluice.Config{}, "the handler is nil"},
		{hub, leases, sluice.Transactional[*sluicetest.Tx](nil, enginetest.Nothing), sluice.Config{}, "the store is nil"},
		{hub, leases, sluice.AtLeastOnce(nil, sluice.EventAsRecord, sink, nil), sluice.Config{}, "the store is nil"},
		{hub, leases, sluice.AtLeastOnce(store, record(nil), sink, nil), sluice.Config{}, "the function that makes records is nil"},
		{hub, leases, sluice.AtLeastOnce[*sluice.Event](store, sluice.EventAsRecord, nil, nil), sluice.Config{}, "the sink is nil"},
		{hub, leases, sluice.AtLeastOnce(store, sluice.EventAsRecord, sluice.Keyed[*sluice.Event](nil, func(*sluice.Event) string { return "" }), nil), sluice.Config{}, "nil"},
		{(*sluicetest.Hub)(nil), leases, delivery, sluice.Config{}, "nil"},
		{hub, (*enginetest.Ledger)(nil), delivery, sluice.Config{}, "nil pointer"},
		{hub, leases, sluice.Transactional((*sluicetest.Store)(nil), enginetest.Nothing), sluice.Config{}, "nil"},
		{hub, leases, sluice.Batches((*sluicetest.Store)(nil), func(context.Context, sluice.Batch) error { return nil }, nil), sluice.Config{}, "nil"},
		{hub, leases, sluice.Transactional(store, sluice.Each[*sluicetest.Tx](nil)), sluice.Config{}, "handler is nil"},
		{hub, leases, sluice.Transactional(store, sluice.Typed[int, *sluicetest.Tx](nil)), sluice.Config{}, "handler is nil"},
		{hub, leases, sluice.Transactional(store, sluice.Route[*sluicetest.Tx](nil, nil)), sluice.Config{}, "handler is nil"},
		{hub, leases, sluice.Transactional(store, sluice.Route(func(*sluice.Event) string { return "" }, map[string]sluice.Handler[*sluicetest.Tx]{"": enginetest.Nothing, "placed": nil})), sluice.Config{}, "handler is nil"},
		{hub, leases, sluice.AtLeastOnce(store, sluice.EventAsRecord, &sluice.WorkerSink{}, nil), sluice.Config{}, "make it with Workers"},
		{hub, leases, sluice.AtLeastOnce(store, sluice.EventAsRecord, sink, &sluice.AtLeastOnceConfig{Rate: &sluice.Rate{}}), sluice.Config{}, "make it with NewRate"},
		{hub, leases, delivery, sluice.Config{RetryMin: 100}, "is the unit missing"},
		{hub, leases, delivery, sluice.Config{Memory: sluice.NewMemory(0)}, "memory without bytes"},
		{hub, leases, delivery, sluice.Config{Memory: new(sluice.Memory)}, "memory without bytes"},
		{hub, leases, delivery, sluice.Config{Owner: "worker\x00"}, `owner "worker\x00"`},
		{hub, leases, delivery, sluice.Config{Owner: strings.Repeat("x", 1001)}, "1000 bytes"},
		{hub, leases, delivery, sluice.Config{Start: sluice.Ago(0)}, "start 0s ago"},
		{hub, leases, delivery, sluice.Config{Start: sluice.At(time.Time{})}, "start at the zero time"},
		{hub, leases, delivery, sluice.Config{Start: sluice.FromSequence(-1)}, "start at sequence number -1"},
		{hub, leases, delivery, sluice.Config{Start: sluice.FromOffset("")}, "start at an empty offset"},
		{hub, leases, delivery, sluice.Config{Start: sluice.Start{Kind: 99}}, "start of kind 99"},
	} {
		_, err := sluice.New(test.source, test.leases, test.delivery, &test.cfg)
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%+v: got %v, want %q", test.cfg, err, test.want)
		}
	}
}

func TestConfig(t *testing.T) {
	hub, leases, store := sluicetest.NewHub(enginetest.Group, 1), enginetest.NewLedger(), &sluicetest.Store{}
	for _, bad := range []struct {
		n   sluice.Partitions
		cfg sluice.Config
	}{
		{-2, sluice.Config{}}, {-3, sluice.Config{}},
		{1, sluice.Config{LeaseFor: 20 * time.Second, RenewEvery: 10 * time.Second}},
		{1, sluice.Config{MaxBatch: -1}}, {1, sluice.Config{Attempts: -1}},
		{1, sluice.Config{RetryMin: time.Second, RetryMax: time.Millisecond}},
	} {
		bad.cfg.Partitions = bad.n
		if _, err := sluice.New(hub, leases, sluice.Transactional(store, enginetest.Nothing), &bad.cfg); err == nil {
			t.Errorf("accepted %d partitions, %+v", bad.n, bad.cfg)
		}
	}
}
