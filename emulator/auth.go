package emulator

import (
	"bytes"
	"crypto/subtle"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/sluice-go/sluice/emulator/internal/amqp"
)

// maxGrants bounds the entities that one connection can put tokens for.
const maxGrants = 5000

// authority knows what one connection may do. Without keys, that is everything.
type authority struct {
	keys map[string]Key
	now  func() time.Time

	mu      sync.Mutex
	proved  *Key             // by SASL PLAIN
	grants  map[string]grant // by path of an entity, in lower case; "" is the whole namespace
	links   map[*amqp.Link]use
	timer   *time.Timer
	stopped bool
	expires sync.WaitGroup // timers that are set or have fired
}

// grant is what a token has proved for an entity and all that lies below it.
type grant struct {
	rights Rights
	expiry time.Time
}

// use is what a link does: it needs the right for as long as it is attached.
type use struct {
	path  string // "$management" stands for any entity
	right Rights
}

func newAuthority(keys map[string]Key) *authority {
	return &authority{keys: keys, now: time.Now, grants: make(map[string]grant), links: make(map[*amqp.Link]use)}
}

// plain checks a SASL PLAIN response: the name of a key as user, its secret as password.
func (a *authority) plain(response []byte) error {
	if len(a.keys) == 0 {
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
	a.proved = &key
	a.mu.Unlock()
	return nil
}

// put checks a token for an audience, and grants what it proves.
func (a *authority) put(token, audience string) refusal {
	if len(a.keys) == 0 {
		return accepted
	}
	g, why := verify(a.keys, a.now(), token, audience)
	if why != accepted {
		return why
	}
	path := strings.ToLower(pathOf(audience))
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.grants[path]; !ok && len(a.grants) >= maxGrants {
		return refusal(fmt.Sprintf("TooManyTokens: A connection may have tokens for %d entities.", maxGrants))
	}
	a.grants[path] = g
	a.schedule()
	return accepted
}

// within tells whether the entity path lies at or below a granted one.
func within(granted, path string) bool {
	return granted == "" || path == granted || strings.HasPrefix(path, granted+"/")
}

// allows tells whether a live token proves a right for an entity that covers accepts. a.mu is held.
func (a *authority) allows(right Rights, covers func(granted string) bool) bool {
	if len(a.keys) == 0 || a.proved != nil && a.proved.Rights.has(right) {
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

// permits tells whether a link may be used so. a.mu is held.
func (a *authority) permits(u use) bool {
	path := strings.ToLower(u.path)
	return a.allows(u.right, func(granted string) bool { return path == managementNode || within(granted, path) })
}

// holds tells whether an entity may be used so now.
func (a *authority) holds(u use) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.permits(u)
}

// allowHub tells whether the connection has a token for the hub, or for any entity of it, whatever its rights.
func (a *authority) allowHub(name string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.allows(Listen|Send, func(granted string) bool {
		first, _, _ := strings.Cut(granted, "/")
		return first == "" || first == strings.ToLower(name)
	})
}

// admit lets a link be used until the tokens that it needs have expired; leave ends that.
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

// expire forgets what has expired, and detaches the links that nothing covers any more.
func (a *authority) expire() {
	a.mu.Lock()
	now := a.now()
	for path, g := range a.grants {
		if !now.Before(g.expiry) {
			delete(a.grants, path)
		}
	}
	var orphans []*amqp.Link
	for l, u := range a.links {
		if !a.permits(u) {
			orphans = append(orphans, l)
		}
	}
	a.schedule()
	a.mu.Unlock()
	for _, l := range orphans {
		l.Detach(amqp.Errorf(amqp.CondUnauthorized, "ExpiredToken: The token is expired. Put a new one and attach the link again."))
	}
}

// stop ends the timer, and waits if it has just fired.
func (a *authority) stop() {
	a.mu.Lock()
	a.stopped = true
	a.unschedule()
	a.mu.Unlock()
	a.expires.Wait()
}
