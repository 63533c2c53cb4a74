package emulator

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sluice-go/sluice/internal/amqp"
)

// maxGrants bounds the entities that one connection can put tokens for.
const maxGrants = 5000

// authority knows what one connection may do. Without keys, that is everything.
type authority struct {
	keys map[string]string
	now  func() time.Time

	mu      sync.Mutex
	all     bool                 // proved a key by SASL PLAIN
	grants  map[string]time.Time // expiry by path of an entity, in lower case; "" is the whole namespace
	links   map[*amqp.Link]string
	timer   *time.Timer
	stopped bool
	expires sync.WaitGroup // timers that are set or have fired
}

func newAuthority(keys map[string]string) *authority {
	return &authority{keys: keys, now: time.Now, grants: make(map[string]time.Time), links: make(map[*amqp.Link]string)}
}

// refusal tells a client why its token isn't accepted, worded as Azure does where it is known how.
type refusal string

const (
	accepted      refusal = ""
	badSignature  refusal = "InvalidSignature: The token has an invalid signature."
	malformed     refusal = "MalformedToken: The token isn't a shared access signature with the fields sr, sig, se and skn."
	wrongAudience refusal = "InvalidAudience: The token's resource doesn't cover the audience it was put for."
)

// plain checks a SASL PLAIN response: the name of a key as user, the key as password.
func (a *authority) plain(response []byte) error {
	if len(a.keys) == 0 {
		return nil
	}
	part := bytes.Split(response, []byte{0})
	if len(part) != 3 {
		return errors.New("malformed PLAIN response")
	}
	key, ok := a.keys[string(part[1])]
	if subtle.ConstantTimeCompare([]byte(key), part[2]) != 1 || !ok {
		return errors.New("unknown key name, or wrong key")
	}
	a.mu.Lock()
	a.all = true
	a.mu.Unlock()
	return nil
}

// put checks a token for an audience, and grants what it proves.
func (a *authority) put(token, audience string) refusal {
	if len(a.keys) == 0 {
		return accepted
	}
	expiry, why := a.verify(token, audience)
	if why != accepted {
		return why
	}
	path := strings.ToLower(pathOf(audience))
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.grants[path]; !ok && len(a.grants) >= maxGrants {
		return refusal(fmt.Sprintf("TooManyTokens: A connection may have tokens for %d entities.", maxGrants))
	}
	a.grants[path] = expiry
	a.schedule()
	return accepted
}

// verify checks a shared access signature: the HMAC, the expiry, and that its resource is the audience, or above it.
func (a *authority) verify(token, audience string) (expiry time.Time, why refusal) {
	sas, ok := parseSAS(token)
	if !ok {
		return expiry, malformed
	}
	key, known := a.keys[sas.keyName] // of an unknown name, "": the comparison takes as long
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write([]byte(sas.signed))
	if !hmac.Equal(mac.Sum(nil), sas.mac) || !known {
		return expiry, badSignature
	}
	if !a.now().Before(sas.expiry) {
		return expiry, refusal(fmt.Sprintf("ExpiredToken: The token is expired. Expiration time: '%s'.", sas.expiry.Format(time.RFC3339)))
	}
	if !within(strings.ToLower(sas.path), strings.ToLower(pathOf(audience))) {
		return expiry, wrongAudience
	}
	return sas.expiry, accepted
}

// signature is a shared access signature taken apart.
type signature struct {
	path    string // of the resource
	signed  string // what the HMAC-SHA256 is computed over: resource and expiry as written in the token; the secret is the key's text
	mac     []byte
	expiry  time.Time
	keyName string
}

func parseSAS(token string) (s signature, ok bool) {
	text, ok := strings.CutPrefix(token, "SharedAccessSignature ")
	if !ok {
		return s, false
	}
	field := make(map[string]string)
	for pair := range strings.SplitSeq(text, "&") {
		name, value, _ := strings.Cut(pair, "=")
		field[name] = value
	}
	resource, err1 := url.QueryUnescape(field["sr"])
	mac, err2 := url.QueryUnescape(field["sig"])
	seconds, err3 := strconv.ParseInt(field["se"], 10, 64)
	var err4 error
	s.mac, err4 = base64.StdEncoding.DecodeString(mac)
	if errors.Join(err1, err2, err3, err4) != nil {
		return s, false
	}
	if !strings.Contains(resource, "://") {
		resource = "sb://" + resource
	}
	s.path, s.signed = pathOf(resource), field["sr"]+"\n"+field["se"]
	s.expiry = time.Unix(seconds, 0).UTC()
	s.keyName = field["skn"] // the client libraries write it as it is
	return s, true
}

// within tells whether the entity path lies at or below a granted one.
func within(granted, path string) bool {
	return granted == "" || path == granted || strings.HasPrefix(path, granted+"/")
}

// check tells whether the entity at path may be used. a.mu is held.
func (a *authority) check(path string) error {
	if len(a.keys) == 0 || a.all {
		return nil
	}
	now := a.now()
	for granted, expiry := range a.grants {
		if within(granted, strings.ToLower(path)) && now.Before(expiry) {
			return nil
		}
	}
	return amqp.Errorf(amqp.CondUnauthorized, "Unauthorized access. 'Send' or 'Listen' claims are required: put a token for '%.300s' first.", path)
}

// allowHub tells whether the connection has a token for the hub, or for any entity of it.
func (a *authority) allowHub(name string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.keys) == 0 || a.all {
		return true
	}
	now := a.now()
	for granted, expiry := range a.grants {
		first, _, _ := strings.Cut(granted, "/")
		if (first == "" || first == strings.ToLower(name)) && now.Before(expiry) {
			return true
		}
	}
	return false
}

// admit lets a link use the entity at path until the tokens that cover it have expired; leave ends that.
func (a *authority) admit(l *amqp.Link, path string) (leave func(), err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.check(path); err != nil {
		return nil, err
	}
	a.links[l] = path
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.links, l)
	}, nil
}

// schedule sets the timer to the next expiry.
func (a *authority) schedule() {
	var next time.Time
	for _, expiry := range a.grants {
		if next.IsZero() || expiry.Before(next) {
			next = expiry
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
	for path, expiry := range a.grants {
		if !now.Before(expiry) {
			delete(a.grants, path)
		}
	}
	var orphans []*amqp.Link
	for l, path := range a.links {
		if a.check(path) != nil {
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
