// Package databasetoken reads `credential=default` in the URL of a database on Azure: then each new
// connection gets a token of Entra ID in place of a password.
package databasetoken

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
)

const parameter = "credential"

// Token returns a token for a new connection. It may be called by several goroutines.
type Token = func(context.Context) (string, error)

// Postgres returns the URL of a PostgreSQL database without its parameter credential, and a
// function that returns a password for a new connection; nil if the URL does not have the
// parameter. A text that is no URL is returned as it is. Errors do not quote the URL.
func Postgres(text string) (clean string, password Token, err error) {
	return split(text, "ossrdbms-aad.database.", func(u *url.URL) error {
		q := u.Query()
		_, given := u.User.Password()
		switch {
		case given || q.Has("password"):
			return errors.New("has a password and credential=default: write one of them")
		case u.User.Username() == "":
			return errors.New("credential=default needs a user: the name that the identity has in the database")
		case !encrypted(q.Get("sslmode")) && !local(u.Hostname()):
			return errors.New("credential=default sends a token, which needs TLS: add sslmode=verify-full")
		}
		return nil
	})
}

// SQLServer is [Postgres] for a database of SQL Server or Azure SQL, whose URL has no user then.
func SQLServer(text string) (clean string, token Token, err error) {
	return split(text, "database.", func(u *url.URL) error {
		switch encrypt := strings.ToLower(u.Query().Get("encrypt")); {
		case u.User != nil:
			return errors.New("has a user and credential=default: write one of them")
		case encrypt != "true" && encrypt != "strict":
			return errors.New("credential=default sends a token, which needs TLS: add encrypt=true")
		}
		return nil
	})
}

// split removes the parameter from a URL that check accepts. The tokens are for a service of Azure.
func split(text, service string, check func(u *url.URL) error) (clean string, token Token, err error) {
	u, err := url.Parse(text)
	if err != nil || !u.Query().Has(parameter) {
		return text, nil, nil
	}
	q := u.Query()
	if q.Get(parameter) != "default" || len(q[parameter]) > 1 {
		return "", nil, errors.New("credential: write credential=default, which is Entra ID")
	}
	if err := check(u); err != nil {
		return "", nil, err
	}
	q.Del(parameter)
	u.RawQuery = q.Encode()
	return u.String(), tokens(scope(service, u.Hostname()), newCredential), nil
}

func encrypted(sslmode string) bool {
	return sslmode == "require" || sslmode == "verify-ca" || sslmode == "verify-full"
}

func local(host string) bool {
	ip := net.ParseIP(host)
	return host == "" || host == "localhost" || ip != nil && ip.IsLoopback()
}

// scope returns the scope of tokens for a service in the cloud of a host.
func scope(service, host string) string {
	suffix := "windows.net"
	for _, other := range []string{"chinacloudapi.cn", "usgovcloudapi.net"} {
		if strings.HasSuffix(host, "."+other) {
			suffix = other
		}
	}
	return "https://" + service + suffix + "/.default"
}

func newCredential() (azcore.TokenCredential, error) {
	return azidentity.NewDefaultAzureCredential(nil)
}

// tokens returns a function that returns a token. The credential is made once, and
// caches tokens until shortly before they expire.
func tokens(scope string, connect func() (azcore.TokenCredential, error)) Token {
	connect = sync.OnceValues(connect)
	return func(ctx context.Context) (string, error) {
		credential, err := connect()
		if err != nil {
			return "", fmt.Errorf("default credential: %w", err)
		}
		token, err := credential.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{scope}})
		if err != nil {
			return "", &tokenError{err}
		}
		return token.Token, nil
	}
}

// tokenError is the error of a credential in one line.
type tokenError struct{ err error }

func (e *tokenError) Error() string {
	words := slices.DeleteFunc(strings.Fields(e.err.Error()), func(word string) bool { return strings.Trim(word, "-") == "" })
	return "no token from Entra ID: " + strings.Join(words, " ")
}

func (e *tokenError) Unwrap() error { return e.err }
