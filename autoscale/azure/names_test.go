package azure

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// TestQueuePrefix: each resource has queues of its own, with names that Azure allows.
func TestQueuePrefix(t *testing.T) {
	allowed := regexp.MustCompile(`^[a-z0-9](-?[a-z0-9])*$`)
	long := strings.Repeat("x", 120)
	names := []string{"orders", "Orders", "ORDERS", "orders.", "orders-", "-orders", "or--ders", "or-ders", "or.ders", "or ders", "Größe ✈", "✈", "✉", "0",
		long, long[:119] + "y", long[:40], long[:41], "a-0123456789abcdef", strings.TrimSuffix(QueuePrefix("Orders"), "-")}
	for i := range 50 {
		names = append(names, fmt.Sprintf("Resource %d of a long name that begins like all the others", i))
	}
	seen := map[string]string{}
	for _, name := range names {
		p := QueuePrefix(name)
		for _, queue := range []string{"metrics", "actions", "reports"} {
			if whole := p + queue + "-poison"; len(whole) > 63 || !allowed.MatchString(whole) {
				t.Errorf("%s: Azure does not allow the name %s", name, whole)
			}
		}
		if other, taken := seen[p]; taken {
			t.Errorf("%q and %q have the same prefix %s", name, other, p)
		}
		seen[p] = name
	}
	if p := QueuePrefix("orders"); p != "orders-" {
		t.Errorf("the prefix of orders is %s", p)
	}
}
