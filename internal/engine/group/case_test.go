package group_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/engine/enginetest"
	"github.com/sluice-go/sluice/sluicetest"
)

// anyCase is a log that ignores case in names, and was opened by another spelling of them.
type anyCase struct {
	*sluicetest.Hub
	group sluice.Group
}

func (a *anyCase) Describe(ctx context.Context) (sluice.Topic, error) {
	topic, err := a.Hub.Describe(ctx)
	topic.Group, topic.AnyCase = a.group, true
	return topic, err
}

// Where the log ignores case, consumers that spell the group in another way go on where the first
// one stopped.
func TestCaseOfNames(t *testing.T) {
	for name, atLeastOnce := range map[string]bool{"transactional": false, "at least once": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hub, leases, store, observed := sluicetest.NewHub(enginetest.Group, 1), enginetest.NewLedger(), &sluicetest.Store{}, &enginetest.Halts{}
				var all []int64
				for _, g := range []sluice.Group{{Namespace: "NS", Topic: "Billing", Name: "Group"}, {Namespace: "ns", Topic: "billing", Name: "group"}, {Namespace: "ns.", Topic: "BILLING", Name: "GROUP"}} {
					hub.Append("0", sluicetest.Bodies("a", "b")...)
					all = append(all, observed.Read(t, &anyCase{hub, g}, leases, store, atLeastOnce, sluice.Earliest())...)
				}
				if want := []int64{0, 1, 2, 3, 4, 5}; !slices.Equal(all, want) || observed.Failed != nil || observed.Halted != nil {
					t.Errorf("events %v took effect, want %v; failed %v, halted %v", all, want, observed.Failed, observed.Halted)
				}
			})
		})
	}
}

// A store with two spellings of one group is refused: nothing shows which positions are right.
func TestTwoSpellings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub, leases, store := sluicetest.NewHub(enginetest.Group, 1), enginetest.NewLedger(), &sluicetest.Store{}
		hub.Append("0", sluicetest.Bodies("a")...)
		for _, topic := range []string{"Billing", "billing"} {
			g := sluice.Group{Namespace: "ns", Topic: topic, Name: "group"}
			if _, err := leases.Acquire(t.Context(), g, "0", "earlier", 1, 0); err != nil {
				t.Fatal(err)
			}
		}
		delivery := sluice.Transactional(store, func(context.Context, *sluicetest.Tx, sluice.Batch) error {
			t.Error("an event took effect")
			return nil
		})
		c := enginetest.Must(sluice.New(&anyCase{hub, sluice.Group{Namespace: "ns", Topic: "billing", Name: "group"}}, leases, delivery, nil))
		if err := c.Run(t.Context()); !errors.Is(err, sluice.ErrRefused) || !strings.Contains(err.Error(), "ns/Billing/group and ns/billing/group") {
			t.Errorf("the consumer ended with %v", err)
		}
	})
}
