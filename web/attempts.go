package web

import (
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// How often a token may be tried in vain: by one address at first and then
// once every so often, and by all of them together.
const (
	triesAtFirst = 5
	triesEvery   = 5 * time.Second
	allAtFirst   = 50
	allEvery     = time.Second
	// addresses is how many are kept apart; any further only count together.
	addresses = 4096
)

// attempts slows down guessing.
type attempts struct {
	mu  sync.Mutex
	by  map[netip.Prefix]*rate.Limiter
	all *rate.Limiter
}

func newAttempts() *attempts {
	return &attempts{by: map[netip.Prefix]*rate.Limiter{}, all: rate.NewLimiter(rate.Every(allEvery), allAtFirst)}
}

// may tells whether the address may try.
func (a *attempts) may(from netip.Addr) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.all.Tokens() < 1 {
		return false
	}
	l := a.by[network(from)]
	return l == nil || l.Tokens() >= 1
}

// failed counts an attempt in vain.
func (a *attempts) failed(from netip.Addr) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all.Allow()
	l := a.by[network(from)]
	if l == nil {
		if len(a.by) == addresses {
			a.forget()
		}
		if len(a.by) == addresses {
			return
		}
		l = rate.NewLimiter(rate.Every(triesEvery), triesAtFirst)
		a.by[network(from)] = l
	}
	l.Allow()
}

// forget drops the addresses that may try as if they never had.
func (a *attempts) forget() {
	for at, l := range a.by {
		if l.Tokens() >= triesAtFirst {
			delete(a.by, at)
		}
	}
}

// network is what one guesser has: an IPv4 address, or an IPv6 network.
func network(from netip.Addr) netip.Prefix {
	from = from.Unmap().WithZone("")
	bits := 32
	if from.Is6() {
		bits = 64
	}
	p, err := from.Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return p
}
