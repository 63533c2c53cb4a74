package pgstore_test

import (
	"strings"
	"testing"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/pgtest"
)

// A failover moves the primary's address while connections to the other server stay: they are given
// up when that turns out to be a standby, so that the next attempt reaches the primary.
func TestStandby(t *testing.T) {
	primary := pgtest.New(t, nil)
	url, err := primary.CreateDatabase(t.Context(), "flights")
	if err != nil {
		t.Fatal(err)
	}
	proxy, through := pgtest.NewTestProxy(t, url)
	s := open(t, through+"&target_session_attrs=any&pool_max_conns=1", quick)
	direct := open(t, url, quick)
	createEffects(t, direct)
	a := lease("a", 1)
	claim(t, s, a)
	standby := primary.NewStandby(t)

	for name, call := range map[string]func() error{
		"commit": func() error { return commit(t.Context(), s, a, driver.Unset, positionAt(1), "1") },
		"renew":  func() error { _, err := s.Leases().Acquire(t.Context(), group, "0", "a", 0, 0); return err },
	} {
		proxy.Retarget(standby.Addr())
		proxy.Cut()
		eventually(t, "the store has reached the standby", func() bool {
			err := call()
			return err != nil && strings.Contains(err.Error(), "recovery")
		})
		proxy.Retarget(primary.Addr())
		if err := call(); err != nil {
			t.Errorf("%s on the connections to a standby, after the address moved to the primary: %v", name, err)
		}
	}
	expect(t, direct, positionAt(1), "1")
}
