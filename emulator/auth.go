package emulator

import (
	"bytes"
	"crypto/subtle"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/sluice-go/sluice/internal/amqp"
)

// maxGrants is the number of entities that one connection can put tokens for.
const maxGrants = 5000

// authority decides what one connection may do. Without keys and issuer, everything is
// allowed.
type authority struct {
	keys   map[string]Key
	issuer *Issuer // nil: no tokens of Entra ID
	now    func() time.Time

	mu      sync.Mutex
	saslKey *Key             // the key proved by SASL PLAIN
	grants  map[string]grant // by path of an entity, in lower case; "" is the whole namespace
	links   map[*amqp.Link]use
	timer   *time.Timer
	stopped bool
	expires sync.WaitGroup // timers that are set or have fired
}

// grant is the rights that a token has proved for an entity and everything below it.
type grant struct {
	rights Rights
	expiry time.Time
}

// use is what a link is used for: it needs the right for as long as it is attached.
type use struct {
	path  string // "$management" stands for any entity
	right Rights
}

func newAuthority(keys map[string]Key) *authority {
	return &authority{keys: keys, now: time.Now, grants: make(map[string]grant), links: make(map[*amqp.Link]use)}
}

// open reports whether everything is allowed, because there is nothing to prove.
func (a *authority) open() bool { return len(a.keys) == 0 && a.issuer == nil }

// plain checks a SASL PLAIN response: the name of a key as user, its secret as password.
func (a *authority) plain(response []byte) error {
	if a.open() {
		return nil
	}
	part := bytes.Split(response, []byte{0})
	if len(part) != 3 {
		return errors.New("malformed PLAIN response")
	}
	key, ok := a.keys[string(part[1])]
	if subtle.ConstantTimeCompare([]byte(key.Secret), part[2]) != 1 || !ok {
		return errors.New("unknown key name, or wrong key")
	}
	a.mu.Lock()
	a.saslKey = &key
	a.mu.Unlock()
	return nil
}

// put verifies a token for an audience, and grants what it proves.
func (a *authority) put(token, audience string) tokenError {
	if a.open() {
		return accepted
	}
	g, why := a.verify(token, audience)
	if why != accepted {
		return why
	}
	path := strings.ToLower(pathOf(audience))
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.grants[path]; !ok && len(a.grants) >= maxGrants {
		return tokenError(fmt.Sprintf("TooManyTokens: A connection may have tokens for at most %d entities.", maxGrants))
	}
	a.grants[path] = g
	a.schedule()
	return accepted
}

// proves reports whether a token gives any right for a hub, or for $management below it.
func (a *authority) proves(token, hub string) bool {
	for _, path := range []string{hub, hub + "/" + managementNode} {
		if _, why := a.verify(token, "sb://host/"+path); why == accepted {
			return true
		}
	}
	return false
}

// verify checks a token for an audience.
func (a *authority) verify(token, audience string) (grant, tokenError) {
	if a.issuer != nil && !strings.HasPrefix(token, sasPrefix) {
		return a.issuer.verify(token, a.now())
	}
	return verify(a.keys, a.now(), token, audience)
}

// covers reports whether path is the granted entity or below it.
func covers(granted, path string) bool {
	return granted == "" || path == granted || strings.HasPrefix(path, granted+"/")
}

// allows reports whether an unexpired token proves a right for an entity that covers
// accepts. a.mu is held.
func (a *authority) allows(right Rights, covers func(granted string) bool) bool {
	if a.open() || a.saslKey != nil && a.saslKey.Rights.has(right) {
		return true
	}
	now := a.now()
	for granted, g := range a.grants {
		if covers(granted) && g.rights.has(right) && now.Before(g.expiry) {
			return true
		}
	}
	return false
}

// permits reports whether a use is allowed. a.mu is held.
func (a *authority) permits(u use) bool {
	path := strings.ToLower(u.path)
	return a.allows(u.right, func(granted string) bool { return path == managementNode || covers(granted, path) })
}

// holds reports whether a use is allowed now.
func (a *authority) holds(u use) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.permits(u)
}

// allowHub reports whether the connection has a token with any right for the hub or an
// entity below it.
func (a *authority) allowHub(name string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.allows(Listen|Send, func(granted string) bool {
		first, _, _ := strings.Cut(granted, "/")
		return first == "" || first == strings.ToLower(name)
	})
}

// admit registers a link that is detached once the tokens that it needs have expired;
// leave ends the registration.
func (a *authority) admit(l *amqp.Link, u use) (leave func(), ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.permits(u) {
		return nil, false
	}
	a.links[l] = u
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.links, l)
	}, true
}

// schedule sets the timer to the next expiry.
func (a *authority) schedule() {
	var next time.Time
	for _, g := range a.grants {
		if next.IsZero() || g.expiry.Before(next) {
			next = g.expiry
		}
	}
	a.unschedule()
	if next.IsZero() || a.stopped {
		return
	}
	a.expires.Add(1)
	a.timer = time.AfterFunc(max(next.Sub(a.now()), 0), func() {
		defer a.expires.Done()
		a.expire()
	})
}

func (a *authority) unschedule() {
	if a.timer != nil && a.timer.Stop() {
		a.expires.Done()
	}
	a.timer = nil
}

// expire removes expired grants, and detaches the links that no grant covers any more.
func (a *authority) expire() {
	a.mu.Lock()
	now := a.now()
	for path, g := range a.grants {
		if !now.Before(g.expiry) {
			delete(a.grants, path)
		}
	}
	var expired []*amqp.Link
	for l, u := range a.links {
		if !a.permits(u) {
			expired = append(expired, l)
		}
	}
	a.schedule()
	a.mu.Unlock()
	for _, l := range expired {
		l.Detach(amqp.Errorf(amqp.CondUnauthorized, "ExpiredToken: The token is expired. Put a new one and attach the link again."))
	}
}

// stop stops the timer, and waits for it if it has just fired.
func (a *authority) stop() {
	a.mu.Lock()
	a.stopped = true
	a.unschedule()
	a.mu.Unlock()
	a.expires.Wait()
}
