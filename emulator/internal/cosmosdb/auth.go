package cosmosdb

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

// keyring holds the valid account keys.
type keyring struct {
	mu   sync.RWMutex
	keys []accountKey
}

type accountKey struct {
	text   string
	secret []byte
}

var (
	errNoKey  = errors.New("the account has no such key") // without the key, which is secret
	errNoText = errors.New("not base64, or empty")
)

func (k *keyring) add(text string) error {
	secret, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(secret) == 0 {
		return errNoText
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if !slices.ContainsFunc(k.keys, func(a accountKey) bool { return a.text == text }) {
		k.keys = append(k.keys, accountKey{text, secret})
	}
	return nil
}

func (k *keyring) revoke(text string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := len(k.keys)
	k.keys = slices.DeleteFunc(slices.Clone(k.keys), func(a accountKey) bool { return a.text == text })
	if len(k.keys) == n {
		return errNoKey
	}
	return nil
}

func (k *keyring) list() []string {
	k.mu.RLock()
	defer k.mu.RUnlock()
	list := make([]string, len(k.keys))
	for i, a := range k.keys {
		list[i] = a.text
	}
	return list
}

// verify reports whether sig is the HMAC of text with one of the keys.
func (k *keyring) verify(text string, sig []byte) bool {
	k.mu.RLock()
	defer k.mu.RUnlock()
	var sum [sha256.Size]byte
	for _, a := range k.keys {
		h := hmac.New(sha256.New, a.secret)
		_, _ = h.Write([]byte(text))
		if hmac.Equal(h.Sum(sum[:0]), sig) {
			return true
		}
	}
	return false
}

// maxSkew is how much a request's date may differ from the account's clock.
const maxSkew = 15 * time.Minute

const unauthorized = "The input authorization token can't serve the request. The wrong key is being used or the expected payload is not built as per the protocol."

// authorize checks the signature of a request: HMAC-SHA256 over method, resource type,
// resource link and date, as documented in the reference of the REST API under "Access
// control on Azure Cosmos DB resources". The link is that of names or, if it isn't empty, that
// of resource ids.
func (c *call) authorize(kind, link, ridLink string) *failure {
	a, r := c.account, c.r
	token := r.Header.Get("Authorization")
	if strings.Contains(token, "%") {
		plain, err := url.QueryUnescape(token)
		if err != nil {
			return fail(http.StatusUnauthorized, 0, unauthorized)
		}
		token = plain
	}
	if token == "" {
		return fail(http.StatusUnauthorized, 0, "Required Header authorization is missing. Ensure a valid Authorization token is passed.")
	}
	if bearer, ok := strings.CutPrefix(token, "type=aad&ver=1.0&sig="); ok {
		c.bearer = true
		return c.authorizeToken(bearer)
	}
	rest, ok := strings.CutPrefix(token, "type=master&ver=1.0&sig=")
	if !ok {
		return fail(http.StatusUnauthorized, 0, "The authorization token must be of type master or aad and version 1.0.")
	}
	sig, err := base64.StdEncoding.DecodeString(rest)
	if err != nil {
		return fail(http.StatusUnauthorized, 0, unauthorized)
	}
	date := r.Header.Get("X-Ms-Date")
	if date == "" {
		date = r.Header.Get("Date")
	}
	at, err := http.ParseTime(date)
	if err != nil {
		return fail(http.StatusUnauthorized, 0, "The request's date must be in the header x-ms-date, as in Tue, 01 Nov 1994 08:12:31 GMT.")
	}
	if d := a.now().Sub(at); d > maxSkew || d < -maxSkew {
		return fail(http.StatusForbidden, 0, "The authorization token is not valid at the current time. Please provide a valid token.")
	}
	signs := func(link string) bool {
		return a.keys.verify(strings.ToLower(r.Method)+"\n"+kind+"\n"+link+"\n"+strings.ToLower(date)+"\n\n", sig)
	}
	if !signs(link) && (ridLink == "" || !signs(ridLink)) {
		return fail(http.StatusUnauthorized, 0, unauthorized)
	}
	return nil
}

// Principal is an identity that has an access token, and what its role allows: Azure's Data
// Reader reads, its Data Contributor reads and writes.
type Principal struct {
	ID          string
	Read, Write bool
}

// substatusNoRole is Azure's for a principal whose roles don't allow the action.
const substatusNoRole = 5301

// authorizeToken checks an access token of Entra ID.
func (c *call) authorizeToken(token string) *failure {
	a := c.account
	if a.acceptsToken(token) {
		return nil
	}
	if a.cfg.Verify == nil {
		return fail(http.StatusUnauthorized, 0, "The access token is not one that the account accepts.")
	}
	p, err := a.cfg.Verify(token, c.r.Host)
	if err != nil {
		return fail(http.StatusUnauthorized, 0, err.Error())
	}
	c.principal = &p
	return nil
}

// checkRole refuses what the roles of the client's principal don't allow.
func (c *call) checkRole() *failure {
	p := c.principal
	if p == nil {
		return nil
	}
	if action, allowed := c.action(p); !allowed {
		return c.noRole(action)
	}
	return nil
}

// noRole refuses an action that the roles of the client's principal don't allow.
func (c *call) noRole(action string) *failure {
	return fail(http.StatusForbidden, substatusNoRole, "Request blocked by Auth emulator : Request is blocked because principal ["+c.principal.ID+
		"] does not have required RBAC permissions to perform action ["+action+"] on resource [/"+strings.Join(c.path, "/")+"]. Learn more: https://aka.ms/cosmos-native-rbac.")
}

// Actions as Azure names them.
const (
	accountAction   = "Microsoft.DocumentDB/databaseAccounts/"
	containerAction = accountAction + "sqlDatabases/containers/"
	readItems       = containerAction + "items/read"
)

// action returns what the request does, and whether the principal may. Whoever may read or
// write items may read metadata. What a batch reads is checked later: see checkBatch.
func (c *call) action(p *Principal) (name string, allowed bool) {
	if len(c.path) < 5 || c.path[4] == "pkranges" {
		if c.r.Method == http.MethodGet || c.isQuery() {
			return accountAction + "readMetadata", p.Read || p.Write
		}
		return accountAction + "write", p.Write
	}
	switch c.kind() {
	case OnQuery:
		return containerAction + "executeQuery", p.Read
	case OnRead:
		return readItems, p.Read
	}
	return containerAction + "items/write", p.Write
}

// checkBatch refuses a batch that reads, if the client's principal may only write.
func (c *call) checkBatch(b *batch) *failure {
	if p := c.principal; p == nil || p.Read || !slices.ContainsFunc(b.ops, func(o batchOp) bool { return o.verb == verbRead }) {
		return nil
	}
	return c.noRole(readItems)
}

// acceptsToken reports whether an access token is one of the configuration.
func (a *Account) acceptsToken(token string) bool {
	accepted := false
	for _, t := range a.cfg.Tokens {
		accepted = hmac.Equal([]byte(t), []byte(token)) || accepted
	}
	return accepted
}
