package sluicetest

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
)

// checkBalance has consumers share a topic's partitions out over the store:
// they must find each other in its list, and tell by its times who has left.
func checkBalance(t testing.TB, h leaseHarness) {
	hub := NewHub(testGroup, 4)
	consume := func(owner string) (stop func()) {
		idle := func(context.Context, *Tx, sluice.Batch) error { return nil }
		c, err := sluice.New(hub, h.LeaseStore, sluice.Transactional(new(Store), idle), &sluice.Config{
			Partitions: sluice.Balanced,
			Owner:      owner, LeaseFor: h.long, RenewEvery: time.Second, AssignEvery: 20 * time.Millisecond,
		})
		ok(t, "make a consumer", err)
		ran := make(chan error, 1)
		go func() { ran <- c.Run(context.WithoutCancel(t.Context())) }()
		end := func() error { return c.Stop(context.Background()) }
		t.Cleanup(func() { _ = end(); <-ran })
		return func() { ok(t, "stop "+owner, end()) }
	}
	hold := func(want map[string]int) {
		t.Helper()
		eventually(t, fmt.Sprintf("partitions are held by %v", want), func() bool {
			list, err := h.List(limited(t), testGroup)
			ok(t, "list", err)
			held := map[string]int{}
			for _, l := range list {
				if l.Live() && !l.Member() {
					held[l.Owner]++
				}
			}
			return maps.Equal(held, want)
		})
	}
	stopA := consume("a")
	hold(map[string]int{"a": 4})
	stopB := consume("b")
	hold(map[string]int{"a": 2, "b": 2})
	stopA()
	hold(map[string]int{"b": 4})
	stopB()
	hold(map[string]int{})
}
