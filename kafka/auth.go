package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// Authentication is a way to authenticate with brokers (SASL): [Plain], [SCRAM256], [SCRAM512],
// [OAuthBearer], [EntraID] or [EventHubsConnectionString].
type Authentication struct {
	name    string
	secrets []string
	// mechanism returns franz-go's form of it. The limit bounds the time for a token.
	mechanism func(brokers []string, limit time.Duration) (sasl.Mechanism, error)
}

// Format writes the mechanism's name for every verb, so that nothing prints a password.
func (a *Authentication) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, a.name) }

// Plain authenticates with a user name and a password (SASL/PLAIN). Without TLS both cross the
// network as they are.
func Plain(user, password string) *Authentication {
	return withPassword("PLAIN", user, password, plain.Auth{User: user, Pass: password}.AsMechanism())
}

// SCRAM256 authenticates with a user name and a password (SASL/SCRAM-SHA-256).
func SCRAM256(user, password string) *Authentication {
	return withPassword("SCRAM-SHA-256", user, password, scram.Auth{User: user, Pass: password}.AsSha256Mechanism())
}

// SCRAM512 authenticates with a user name and a password (SASL/SCRAM-SHA-512).
func SCRAM512(user, password string) *Authentication {
	return withPassword("SCRAM-SHA-512", user, password, scram.Auth{User: user, Pass: password}.AsSha512Mechanism())
}

func withPassword(name, user, password string, m sasl.Mechanism) *Authentication {
	return &Authentication{name, []string{password}, func([]string, time.Duration) (sasl.Mechanism, error) {
		if user == "" || password == "" {
			return nil, fmt.Errorf("authentication by %s: no user or no password: give both", name)
		}
		return m, nil
	}}
}

// EventHubsConnectionString authenticates with an Event Hubs namespace by a connection string, as
// SASL/PLAIN with the user $ConnectionString.
func EventHubsConnectionString(connectionString string) *Authentication {
	return Plain("$ConnectionString", connectionString)
}

// OAuthBearer authenticates with tokens (SASL/OAUTHBEARER). The function returns the token for a
// new connection, and again before the broker ends a session; its context has a time limit. An
// error that is a [driver.ErrRefused] says that another attempt cannot help.
func OAuthBearer(token func(ctx context.Context) (string, error)) *Authentication {
	return &Authentication{"OAUTHBEARER", nil, func(_ []string, limit time.Duration) (sasl.Mechanism, error) {
		if token == nil {
			return nil, errors.New("authentication by OAUTHBEARER: no function that returns tokens: give one")
		}
		return bearer(limit, token), nil
	}}
}

// EntraID authenticates with an Event Hubs namespace by Entra ID (SASL/OAUTHBEARER), for example
// with a credential from azidentity.NewDefaultAzureCredential. The first broker names the
// namespace.
func EntraID(credential azcore.TokenCredential) *Authentication {
	return &Authentication{"Entra ID", nil, func(brokers []string, limit time.Duration) (sasl.Mechanism, error) {
		if credential == nil {
			return nil, errors.New("authentication by Entra ID: no credential: give one, for example azidentity.NewDefaultAzureCredential's")
		}
		host, _, _ := net.SplitHostPort(brokers[0])
		options := policy.TokenRequestOptions{Scopes: []string{"https://" + strings.ToLower(host) + "/.default"}}
		return bearer(limit, func(ctx context.Context) (string, error) {
			token, err := credential.GetToken(ctx, options)
			return token.Token, err
		}), nil
	}}
}

func bearer(limit time.Duration, token func(context.Context) (string, error)) sasl.Mechanism {
	return bearerMechanism{oauth.Oauth(func(ctx context.Context) (oauth.Auth, error) {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		text, err := token(ctx)
		switch {
		case err != nil:
			return oauth.Auth{}, &tokenError{err}
		case text == "" || strings.ContainsAny(text, "\x00\x01"):
			return oauth.Auth{}, &tokenError{errors.New("the token is empty or has control characters")}
		}
		return oauth.Auth{Token: text}, nil
	})}
}

// bearerMechanism is franz-go's, except that a broker that refuses a token can say why: it says
// that in a challenge, which the client has to answer before the broker ends the authentication
// (RFC 7628, section 3.2.3).
type bearerMechanism struct{ sasl.Mechanism }

// Authenticate implements [sasl.Mechanism].
func (m bearerMechanism) Authenticate(ctx context.Context, host string) (sasl.Session, []byte, error) {
	s, first, err := m.Mechanism.Authenticate(ctx, host)
	return &bearerSession{Session: s}, first, err
}

type bearerSession struct {
	sasl.Session
	refused bool
}

// Challenge implements [sasl.Session].
func (s *bearerSession) Challenge(challenge []byte) (done bool, answer []byte, err error) {
	switch {
	case s.refused:
		return false, nil, kerr.SaslAuthenticationFailed
	case len(challenge) > 0:
		s.refused = true
		return false, []byte{1}, nil
	}
	return s.Session.Challenge(challenge)
}

// tokenError is the error of what should have returned a token.
type tokenError struct{ err error }

func (e *tokenError) Error() string { return e.err.Error() }
func (e *tokenError) Unwrap() error { return e.err }
