package emulator

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/sluice-go/sluice/emulator/internal/cosmosdb"
)

// Principal is an identity that an [Issuer] gives tokens to.
type Principal struct {
	// ID is the client id.
	ID string
	// Secret is the client secret, and the value of IDENTITY_HEADER.
	Secret string
	// Rights are those of the principal's tokens, in all entities. In a Cosmos DB account,
	// Listen is to read, Send to write. Default: all.
	Rights Rights
}

// IssuerConfig holds the settings of an [Issuer]. The zero value works.
type IssuerConfig struct {
	// Listen is the address to listen on. Default "127.0.0.1:0", a free port.
	Listen string
	// Lifetime is how long tokens are valid. Default 1 hour.
	Lifetime time.Duration
	// Log receives errors. Default: nothing is logged.
	Log *slog.Logger
}

// Issuer issues access tokens as Entra ID does, signed with a key of its own, for servers whose
// configuration names it. It is safe for concurrent use. It serves, over plain HTTP at its own
// address and over HTTPS at the TLS addresses of those servers,
//
//	GET  /msi/token                                 managed identities, as in Azure App Service
//	POST /{tenant}/oauth2/v2.0/token                client credentials
//	GET  /{tenant}/v2.0/.well-known/openid-configuration
//	GET  /{tenant}/discovery/v2.0/keys              the public key (JWKS)
//
// Clients with DefaultAzureCredential or ManagedIdentityCredential get their tokens from it if
// their environment has the variables of [Issuer.Environment]. ClientSecretCredential wants
// HTTPS: its authority host is then a server's TLS address, with any tenant and without instance
// discovery.
type Issuer struct {
	principals []Principal
	lifetime   time.Duration
	key        *rsa.PrivateKey
	keyID      string
	http       *httpServer
}

const (
	tenant       = "sluice"
	maxJWT       = 16 << 10
	maxTokenForm = 16 << 10
)

// StartIssuer starts an issuer. A nil cfg stands for the defaults. It returns an error if a
// principal is invalid or the address can't be listened on.
func StartIssuer(principals []Principal, cfg *IssuerConfig) (*Issuer, error) {
	var c IssuerConfig
	if cfg != nil {
		c = *cfg
	}
	if c.Listen == "" {
		c.Listen = "127.0.0.1:0"
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Lifetime <= 0 {
		c.Lifetime = time.Hour
	}
	for i, p := range principals {
		if p.ID == "" || p.Secret == "" || slices.ContainsFunc(principals[:i], func(o Principal) bool { return o.ID == p.ID }) {
			return nil, fmt.Errorf("emulator: principal %q: ID and secret must not be empty, and the ID must be unique", p.ID)
		}
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, fmt.Errorf("emulator: issuer: %w", err)
	}
	s := &Issuer{principals: slices.Clone(principals), lifetime: c.Lifetime, key: key, keyID: rand.Text()}
	l, err := listen(c.Listen)
	if err != nil {
		return nil, fmt.Errorf("emulator: issuer: %w", err)
	}
	server := &http.Server{Handler: s.handler("http"), ReadTimeout: controlTimeout, WriteTimeout: controlTimeout}
	s.http = serveHTTP(l, l, server, "issuer", c.Log)
	return s, nil
}

// Close waits for requests in progress, up to a second.
func (s *Issuer) Close() error { return s.http.close() }

// URL returns the issuer's address, such as http://127.0.0.1:8080.
func (s *Issuer) URL() string { return "http://" + endpoint(s.http.listener, "80") }

// Environment returns the variables by which the clients of a principal find the issuer, as
// "NAME=VALUE". It returns nil for an unknown principal.
func (s *Issuer) Environment(id string) []string {
	for _, p := range s.principals {
		if p.ID == id {
			return []string{"IDENTITY_ENDPOINT=" + s.URL() + "/msi/token", "IDENTITY_HEADER=" + p.Secret, "AZURE_CLIENT_ID=" + p.ID}
		}
	}
	return nil
}

// handler serves the issuer's requests, at an address with that scheme.
func (s *Issuer) handler(scheme string) *http.ServeMux {
	base := func(r *http.Request) string { return scheme + "://" + r.Host + "/" + tenant }
	mux := http.NewServeMux()
	mux.HandleFunc("GET /msi/token", func(w http.ResponseWriter, r *http.Request) {
		s.issue(w, base(r), r.Header.Get("X-IDENTITY-HEADER"), r.URL.Query().Get("client_id"), r.URL.Query().Get("resource"))
	})
	mux.HandleFunc("POST /{tenant}/oauth2/v2.0/token", func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxTokenForm)
		if err := r.ParseForm(); err != nil || r.PostForm.Get("grant_type") != "client_credentials" || r.PostForm.Get("client_id") == "" {
			respond(w, http.StatusBadRequest, map[string]string{"error": "unsupported_grant_type", "error_description": "the issuer supports client_credentials with a secret only"})
			return
		}
		s.issue(w, base(r), r.PostForm.Get("client_secret"), r.PostForm.Get("client_id"), resourceOf(r.PostForm.Get("scope")))
	})
	mux.HandleFunc("GET /{tenant}/v2.0/.well-known/openid-configuration", func(w http.ResponseWriter, r *http.Request) {
		base := base(r)
		respond(w, http.StatusOK, map[string]any{
			"issuer": base + "/v2.0", "token_endpoint": base + "/oauth2/v2.0/token", "authorization_endpoint": base + "/oauth2/v2.0/authorize",
			"jwks_uri": base + "/discovery/v2.0/keys", "id_token_signing_alg_values_supported": []string{"RS256"},
		})
	})
	mux.HandleFunc("GET /{tenant}/discovery/v2.0/keys", func(w http.ResponseWriter, _ *http.Request) {
		respond(w, http.StatusOK, map[string]any{"keys": []map[string]string{{
			"kty": "RSA", "use": "sig", "alg": "RS256", "kid": s.keyID, "n": encode64(s.key.N.Bytes()), "e": encode64(big.NewInt(int64(s.key.E)).Bytes()),
		}}})
	})
	return mux
}

// wrap returns a handler for an HTTPS address that serves the issuer's requests, and leaves
// all others to next. A nil issuer has none.
func (s *Issuer) wrap(next http.Handler) http.Handler {
	if s == nil {
		return next
	}
	own := s.handler("https")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, pattern := own.Handler(r); pattern != "" {
			own.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// serve serves the issuer's requests alone, at an HTTPS address.
func (s *Issuer) serve(requests net.Listener, log *slog.Logger) *httpServer {
	server := &http.Server{Handler: s.handler("https"), ReadTimeout: controlTimeout, WriteTimeout: controlTimeout, IdleTimeout: 2 * time.Minute}
	return serveHTTP(requests, requests, server, "issuer", log)
}

// resourceOf returns the resource of the first scope that names one: some clients ask for
// openid, offline_access and profile besides.
func resourceOf(scopes string) string {
	for scope := range strings.FieldsSeq(scopes) {
		if resource, ok := strings.CutSuffix(scope, "/.default"); ok {
			return resource
		}
	}
	return scopes
}

// issue answers a request for a token. Without an id, the secret alone says who asks. Base is
// the URL by which the client reaches the issuer.
func (s *Issuer) issue(w http.ResponseWriter, base, secret, id, audience string) {
	for _, p := range s.principals {
		if subtle.ConstantTimeCompare([]byte(secret), []byte(p.Secret)) != 1 || id != "" && id != p.ID {
			continue
		}
		token, expiry, err := s.token(base, p.ID, audience)
		if err != nil {
			break
		}
		seconds := int64(time.Until(expiry).Seconds())
		w.Header().Set("Cache-Control", "no-store")
		respond(w, http.StatusOK, map[string]any{
			"access_token": token, "token_type": "Bearer", "expires_in": seconds, "ext_expires_in": seconds, "expires_on": fmt.Sprint(expiry.Unix()),
			"resource": audience, "client_id": p.ID,
		})
		return
	}
	respond(w, http.StatusUnauthorized, map[string]string{"error": "invalid_client", "error_description": "no principal has that id and secret"})
}

// claims are those of a token that the issuer sets and checks.
type claims struct {
	Issuer    string `json:"iss"`
	Audience  string `json:"aud"`
	Tenant    string `json:"tid"`
	AppID     string `json:"appid"`
	Object    string `json:"oid"`
	NotBefore int64  `json:"nbf"`
	Expiry    int64  `json:"exp"`
}

func (s *Issuer) token(base, id, audience string) (token string, expiry time.Time, err error) {
	now := time.Now()
	expiry = now.Add(s.lifetime).Truncate(time.Second)
	head, err1 := json.Marshal(map[string]string{"typ": "JWT", "alg": "RS256", "kid": s.keyID})
	body, err2 := json.Marshal(claims{
		Issuer: base + "/v2.0", Audience: audience, Tenant: tenant, AppID: id, Object: id, NotBefore: now.Unix(), Expiry: expiry.Unix(),
	})
	signed := encode64(head) + "." + encode64(body)
	hash := sha256.Sum256([]byte(signed))
	mac, err3 := rsa.SignPKCS1v15(nil, s.key, crypto.SHA256, hash[:])
	return signed + "." + encode64(mac), expiry, errors.Join(err1, err2, err3)
}

// audiences are the resources that tokens for Event Hubs and Service Bus are issued for.
var audiences = []string{"https://eventhubs.azure.net", "https://servicebus.azure.net"}

// verify checks a token for a namespace, and returns what it grants.
func (s *Issuer) verify(token string, now time.Time) (grant, tokenError) {
	p, c, why := s.check(token, now)
	if why != accepted {
		return grant{}, why
	}
	if !slices.Contains(audiences, strings.TrimRight(c.Audience, "/")) {
		return grant{}, tokenError("InvalidAudience: The token is for '" + c.Audience + "', not for " + strings.Join(audiences, " or ") + ".")
	}
	return grant{rights: p.Rights, expiry: time.Unix(c.Expiry, 0)}, accepted
}

// cosmosAudience is the resource of tokens for every Cosmos DB account. Most clients ask for
// tokens of the account's host instead.
const cosmosAudience = "https://cosmos.azure.com"

// verifyCosmos checks a token for a Cosmos DB account that the client calls host, and returns
// what it grants.
func (s *Issuer) verifyCosmos(token, host string) (cosmosdb.Principal, error) {
	p, c, why := s.check(token, time.Now())
	if why != accepted {
		return cosmosdb.Principal{}, errors.New(string(why))
	}
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	resource, err := url.Parse(c.Audience)
	if err != nil || resource.Hostname() != host && strings.TrimRight(c.Audience, "/") != cosmosAudience {
		return cosmosdb.Principal{}, fmt.Errorf("InvalidAudience: The token is for '%s', not for %s or the account's host, '%s'", c.Audience, cosmosAudience, host)
	}
	return cosmosdb.Principal{ID: p.ID, Read: p.Rights.has(Listen), Write: p.Rights.has(Send)}, nil
}

// check checks that a token is the issuer's and valid now, and returns whose it is.
func (s *Issuer) check(token string, now time.Time) (Principal, claims, tokenError) {
	const refused tokenError = "InvalidToken: "
	var c claims
	part := strings.Split(token, ".")
	if len(token) > maxJWT || len(part) != 3 {
		return Principal{}, c, refused + "The token is neither a shared access signature nor a JSON web token."
	}
	mac, err := base64.RawURLEncoding.DecodeString(part[2])
	hash := sha256.Sum256([]byte(part[0] + "." + part[1]))
	if err != nil || rsa.VerifyPKCS1v15(&s.key.PublicKey, crypto.SHA256, hash[:], mac) != nil {
		return Principal{}, c, refused + "The token has an invalid signature."
	}
	body, err := base64.RawURLEncoding.DecodeString(part[1])
	if err != nil || json.Unmarshal(body, &c) != nil {
		return Principal{}, c, refused + "The token is damaged."
	}
	if expiry := time.Unix(c.Expiry, 0); !now.Before(expiry) {
		return Principal{}, c, tokenError("ExpiredToken: The token is expired. Expiration time: '" + expiry.UTC().Format(time.RFC3339) + "'.")
	}
	for _, p := range s.principals {
		if p.ID == c.AppID {
			return p, c, accepted
		}
	}
	return Principal{}, c, refused + "The token's principal is unknown."
}

func encode64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }
