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
	"slices"
	"strings"
	"time"
)

// Principal is an identity that an [Issuer] gives tokens to.
type Principal struct {
	// ID is the client id.
	ID string
	// Secret is the client secret, and the value of IDENTITY_HEADER.
	Secret string
	// Rights are those of the principal's tokens, in all entities. Default: all.
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
// configuration names it. It is safe for concurrent use. Over plain HTTP it serves
//
//	GET  /msi/token                                 managed identities, as in Azure App Service
//	POST /{tenant}/oauth2/v2.0/token                client credentials
//	GET  /{tenant}/v2.0/.well-known/openid-configuration
//	GET  /{tenant}/discovery/v2.0/keys              the public key (JWKS)
//
// Clients with DefaultAzureCredential or ManagedIdentityCredential get their tokens from it if
// their environment has the variables of [Issuer.Environment].
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
	l, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return nil, fmt.Errorf("emulator: issuer: %w", err)
	}
	server := &http.Server{Handler: s.handler(), ReadTimeout: controlTimeout, WriteTimeout: controlTimeout}
	s.http = serveHTTP(l, l, server, "issuer", c.Log)
	return s, nil
}

// Close waits for requests in progress, up to a second.
func (s *Issuer) Close() error { return s.http.close() }

// URL returns the issuer's address, such as http://127.0.0.1:8080.
func (s *Issuer) URL() string { return "http://" + endpoint(s.http.at, "80") }

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

func (s *Issuer) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /msi/token", func(w http.ResponseWriter, r *http.Request) {
		s.issue(w, r, r.Header.Get("X-IDENTITY-HEADER"), r.URL.Query().Get("client_id"), r.URL.Query().Get("resource"))
	})
	mux.HandleFunc("POST /{tenant}/oauth2/v2.0/token", func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxTokenForm)
		if err := r.ParseForm(); err != nil || r.PostForm.Get("grant_type") != "client_credentials" || r.PostForm.Get("client_id") == "" {
			respond(w, http.StatusBadRequest, map[string]string{"error": "unsupported_grant_type", "error_description": "the issuer supports client_credentials with a secret only"})
			return
		}
		s.issue(w, r, r.PostForm.Get("client_secret"), r.PostForm.Get("client_id"), strings.TrimSuffix(r.PostForm.Get("scope"), "/.default"))
	})
	mux.HandleFunc("GET /{tenant}/v2.0/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		base := s.URL() + "/" + tenant
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

// issue answers a request for a token. Without an id, the secret alone says who asks.
func (s *Issuer) issue(w http.ResponseWriter, _ *http.Request, secret, id, audience string) {
	for _, p := range s.principals {
		if subtle.ConstantTimeCompare([]byte(secret), []byte(p.Secret)) != 1 || id != "" && id != p.ID {
			continue
		}
		token, expiry, err := s.token(p.ID, audience)
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

func (s *Issuer) token(id, audience string) (token string, expiry time.Time, err error) {
	now := time.Now()
	expiry = now.Add(s.lifetime).Truncate(time.Second)
	head, err1 := json.Marshal(map[string]string{"typ": "JWT", "alg": "RS256", "kid": s.keyID})
	body, err2 := json.Marshal(claims{
		Issuer: s.URL() + "/" + tenant + "/v2.0", Audience: audience, Tenant: tenant, AppID: id, Object: id, NotBefore: now.Unix(), Expiry: expiry.Unix(),
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
	const refused tokenError = "InvalidToken: "
	part := strings.Split(token, ".")
	if len(token) > maxJWT || len(part) != 3 {
		return grant{}, refused + "The token is neither a shared access signature nor a JSON web token."
	}
	mac, err := base64.RawURLEncoding.DecodeString(part[2])
	hash := sha256.Sum256([]byte(part[0] + "." + part[1]))
	if err != nil || rsa.VerifyPKCS1v15(&s.key.PublicKey, crypto.SHA256, hash[:], mac) != nil {
		return grant{}, refused + "The token has an invalid signature."
	}
	var c claims
	body, err := base64.RawURLEncoding.DecodeString(part[1])
	if err != nil || json.Unmarshal(body, &c) != nil {
		return grant{}, refused + "The token is damaged."
	}
	expiry := time.Unix(c.Expiry, 0)
	if !now.Before(expiry) {
		return grant{}, tokenError("ExpiredToken: The token is expired. Expiration time: '" + expiry.UTC().Format(time.RFC3339) + "'.")
	}
	if !slices.Contains(audiences, strings.TrimRight(c.Audience, "/")) {
		return grant{}, tokenError("InvalidAudience: The token is for '" + c.Audience + "', not for " + strings.Join(audiences, " or ") + ".")
	}
	for _, p := range s.principals {
		if p.ID == c.AppID {
			return grant{rights: p.Rights, expiry: expiry}, accepted
		}
	}
	return grant{}, refused + "The token's principal is unknown."
}

func encode64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }
