package web

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// cookieName has the prefix __Host-, with which browsers require that the cookie
	// is Secure, is of this host only, and has Path=/.
	cookieName = "__Host-sluice"
	// sessionLifetime is how long a browser stays signed in.
	sessionLifetime = 12 * time.Hour
	// maxSessions is how many sessions there are at once; a further one evicts the
	// oldest.
	maxSessions = 1000
	// minTokenLength is how many bytes a token must have at least.
	minTokenLength = 16
	maxTokenLength = 4096
)

// auth decides which requests may use the dashboard.
type auth struct {
	token    [sha256.Size]byte // hashed, so that comparing takes the same time for all lengths
	required bool              // there is a token
	limiter  loginLimiter

	mu       sync.Mutex
	sessions map[[sha256.Size]byte]time.Time // by the hash of the cookie: when it ends
}

func newAuth(token string) (*auth, error) {
	d := &auth{limiter: loginLimiter{limiters: map[netip.Prefix]*rate.Limiter{}}, sessions: map[[sha256.Size]byte]time.Time{}}
	if token == "" {
		return d, nil
	}
	if len(token) < minTokenLength || len(token) > maxTokenLength {
		return nil, fmt.Errorf("token of %d bytes: must have %d to %d: make one with `openssl rand -hex 24`", len(token), minTokenLength, maxTokenLength)
	}
	d.token, d.required = sha256.Sum256([]byte(token)), true
	return d, nil
}

// Why a request is refused.
var (
	errSignIn        = errors.New("sign in first")
	errWrongToken    = errors.New("this token is wrong")
	errTooManyLogins = errors.New("too many attempts from here: wait a few seconds")
	errNotLocal      = errors.New("without a token the dashboard answers only requests of this machine, to its loopback address: set a token to reach it from elsewhere")
)

// authenticate returns nil if the request may pass.
func (d *auth) authenticate(r *http.Request) error {
	if !d.required {
		if !loopback(r.RemoteAddr) || !loopback(r.Host) || forwarded(r) {
			return errNotLocal
		}
		return nil
	}
	if c, err := r.Cookie(cookieName); err == nil && d.signedIn(c.Value) {
		return nil
	}
	if token, ok := presented(r); ok {
		return d.login(token, remote(r))
	}
	return errSignIn
}

// forwarded reports whether a proxy on this machine forwards the request for
// another client.
func forwarded(r *http.Request) bool {
	for _, name := range []string{"Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-Ip"} {
		if r.Header.Get(name) != "" {
			return true
		}
	}
	return false
}

// presented is the token in the request's Authorization: a bearer's, or the
// password of any name.
func presented(r *http.Request) (string, bool) {
	if _, password, ok := r.BasicAuth(); ok {
		return password, true
	}
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.TrimSpace(token), ok && strings.EqualFold(scheme, "Bearer")
}

// login compares a token. After too many attempts the result does not say whether it is right.
func (d *auth) login(token string, from netip.Addr) error {
	hash := sha256.Sum256([]byte(token))
	right := subtle.ConstantTimeCompare(hash[:], d.token[:]) == 1
	switch {
	case !d.limiter.allow(from, right):
		return errTooManyLogins
	case !right:
		return errWrongToken
	}
	return nil
}

// newSession opens a session and returns its cookie.
func (d *auth) newSession() *http.Cookie {
	var secret [32]byte
	rand.Read(secret[:])
	value := base64.RawURLEncoding.EncodeToString(secret[:])
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.sessions) >= maxSessions {
		d.evict(now)
	}
	d.sessions[sha256.Sum256([]byte(value))] = now.Add(sessionLifetime)
	return cookie(value, int(sessionLifetime/time.Second))
}

// evict removes sessions that have ended or, if there are none, the oldest.
func (d *auth) evict(now time.Time) {
	var oldest [sha256.Size]byte
	first := now.Add(2 * sessionLifetime)
	for id, until := range d.sessions {
		if !now.Before(until) {
			delete(d.sessions, id)
		} else if until.Before(first) {
			oldest, first = id, until
		}
	}
	if len(d.sessions) >= maxSessions {
		delete(d.sessions, oldest)
	}
}

func (d *auth) signedIn(value string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	until, ok := d.sessions[sha256.Sum256([]byte(value))]
	return ok && time.Now().Before(until)
}

// endSession closes the session of a cookie and returns the cookie that clears it.
func (d *auth) endSession(value string) *http.Cookie {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.sessions, sha256.Sum256([]byte(value)))
	return cookie("", -1)
}

func cookie(value string, age int) *http.Cookie {
	return &http.Cookie{Name: cookieName, Value: value, Path: "/", MaxAge: age, Secure: true, HttpOnly: true, SameSite: http.SameSiteStrictMode}
}

// remote is the address a request comes from.
func remote(r *http.Request) netip.Addr {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return at.Addr()
}

// loopback reports whether an address, with a port or without, is this
// machine's own. The only name that counts is localhost: the owner of any other
// name could make it resolve to this machine.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = strings.Trim(address, "[]")
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return strings.EqualFold(host, "localhost")
	}
	return ip.Unmap().IsLoopback()
}
