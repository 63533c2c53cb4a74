package web

import (
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// How often one address may try a wrong token: a burst first, and then once every
// so often.
const (
	loginBurst = 5
	loginEvery = 5 * time.Second
	// maxAddresses is how many are remembered.
	maxAddresses = 4096
)

// loginLimiter slows down guessing, for each address separately, so that no user is
// locked out by the attempts of others. Against guesses from many addresses, the
// length of the token protects.
type loginLimiter struct {
	mu       sync.Mutex
	limiters map[netip.Prefix]*rate.Limiter // of addresses that tried a wrong token
}

// allow reports whether an attempt with a right or a wrong token is let through.
func (a *loginLimiter) allow(from netip.Addr, right bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	at := network(from)
	l := a.limiters[at]
	if right {
		return l == nil || l.Tokens() >= 1
	}
	if l == nil {
		if len(a.limiters) >= maxAddresses {
			a.evict()
		}
		l = rate.NewLimiter(rate.Every(loginEvery), loginBurst)
		a.limiters[at] = l
	}
	return l.Allow()
}

// evict makes room: of some addresses, it removes the one that may try again first.
func (a *loginLimiter) evict() {
	var first netip.Prefix
	most, seen := -1.0, 0
	for at, l := range a.limiters { // in no order
		if left := l.Tokens(); left > most {
			first, most = at, left
		}
		if seen++; seen == 64 {
			break
		}
	}
	delete(a.limiters, first)
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
