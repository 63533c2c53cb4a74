package cosmos

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"

	"github.com/sluice-go/sluice/driver"
)

// ErrMultiRegionWrites is the outcome of a document with a [Source] in an account with
// multi-region writes, and, with [Config.Conditional], the error of [Sink.Check].
var ErrMultiRegionWrites = errors.New("the account accepts writes in several regions: there the condition that keeps an older event from replacing a newer one does not hold, because each region checks it by itself: turn multi-region writes off, or write without the condition")

// regions is what the account says about its regions.
type regions struct {
	MultiWrite bool `json:"enableMultipleWriteLocations"`
	Write      []struct {
		Name     string
		Endpoint string `json:"databaseAccountEndpoint"`
	} `json:"writableLocations"`
}

// noteRegions keeps what the account says, when the SDK reads it.
func (a *account) noteRegions(resp *http.Response) {
	if resp.StatusCode != http.StatusOK {
		return
	}
	body, err := runtime.Payload(resp) // the SDK can still read it
	var r regions
	if err == nil && json.Unmarshal(body, &r) == nil {
		a.regions.Store(&r)
	}
}

func (a *account) multiRegionWrites() bool {
	r := a.regions.Load()
	return r != nil && r.MultiWrite
}

// checkRegions returns an error for a document that this account cannot write as it
// should.
func (a *account) checkRegions(d *Document) error {
	if d.Source == nil || !a.multiRegionWrites() {
		return nil
	}
	return driver.Outage(fmt.Errorf("cosmos: %s: %w", a.name(), ErrMultiRegionWrites))
}

// preferredWithout returns the preferred regions, or all, with that of a host as the
// last. Without multi-region writes, the SDK uses the write region whatever they are.
func (a *account) preferredWithout(host string) []string {
	names := slices.Clone(a.options.PreferredRegions)
	r := a.regions.Load()
	if r == nil {
		return names
	}
	failed := ""
	for _, region := range r.Write {
		if u, err := url.Parse(region.Endpoint); err == nil && u.Host == host {
			failed = region.Name
		}
		if !slices.ContainsFunc(names, func(n string) bool { return sameRegion(n, region.Name) }) {
			names = append(names, region.Name)
		}
	}
	if i := slices.IndexFunc(names, func(n string) bool { return sameRegion(n, failed) }); i >= 0 {
		names = append(slices.Delete(names, i, i+1), failed)
	}
	return names
}

// sameRegion compares names as the SDK does: "West US" is "westus".
func sameRegion(a, b string) bool {
	return strings.EqualFold(strings.ReplaceAll(a, " ", ""), strings.ReplaceAll(b, " ", ""))
}

// findRegionEvery is the least time between two searches for another region.
const findRegionEvery = time.Second

// unreachable reports whether a request has failed in a way that a region that is gone
// has too.
func (r *request) unreachable() bool {
	return r.sent && (r.status == 0 || r.status == http.StatusServiceUnavailable)
}

// findRegion looks for the region that now takes writes, after a request to a host has
// failed. The SDK does not: it gets a success for every request, so that it does not
// retry, and by itself reads the account every five minutes. A new client reads it at
// once. It replaces the current one if it gets an answer; until then, and if there is
// none, the current one is used: the failure may have been that of one connection.
func (a *account) findRegion(via *connection, host string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed || a.finding || a.current != via || time.Since(a.found) < findRegionEvery {
		return
	}
	// One physical partition that answers 503, or one connection that breaks, does not move
	// the writes of all others. (With one write region a search finds the same region.)
	if a.multiRegionWrites() && time.Since(time.Unix(0, via.answered.Load())) < findRegionEvery {
		return
	}
	a.finding = true
	a.running.Go(func() {
		next, err := a.dial(a.preferredWithout(host))
		if err == nil && !a.answers(next) {
			next.client.Close()
			next = nil
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		a.finding, a.found = false, time.Now()
		switch {
		case next == nil:
		case a.closed || a.current != via:
			next.client.Close()
		default:
			via.client.Close()
			a.current = next
		}
	})
}

// answers reports whether a client reaches a region that takes writes.
func (a *account) answers(via *connection) bool {
	probe := &request{method: http.MethodGet, kind: "colls"}
	a.sendVia(a.ctx, via, probe)
	return probe.sent && !probe.unreachable() && !probe.notHere()
}

// notHere reports whether a region has refused a request because it takes no writes.
func (r *request) notHere() bool {
	sub := subStatus(r.head)
	return r.status == http.StatusForbidden && (sub == subWriteForbidden || sub == subAccountNotFound)
}
