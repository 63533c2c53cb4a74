// Package pgtoken reads `credential=default` in the URL of a PostgreSQL database on Azure:
// then each new connection gets a token of Entra ID as its password.
package pgtoken

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
)

const parameter = "credential"

// Split returns a URL without its parameter credential, and a function that returns a
// password for a new connection; nil if the URL does not have the parameter. A text that
// is no URL is returned as it is. Errors do not quote the URL.
func Split(text string) (clean string, password func(context.Context) (string, error), err error) {
	u, err := url.Parse(text)
	if err != nil || !u.Query().Has(parameter) {
		return text, nil, nil
	}
	q := u.Query()
	_, given := u.User.Password()
	switch {
	case q.Get(parameter) != "default" || len(q[parameter]) > 1:
		return "", nil, errors.New("credential: write credential=default, which is Entra ID")
	case given || q.Has("password"):
		return "", nil, errors.New("has a password and credential=default: write one of them")
	case u.User.Username() == "":
		return "", nil, errors.New("credential=default needs a user: the name that the identity has in the database")
	case !encrypted(q.Get("sslmode")) && !local(u.Hostname()):
		return "", nil, errors.New("credential=default sends a token, which needs TLS: add sslmode=verify-full")
	}
	q.Del(parameter)
	u.RawQuery = q.Encode()
	return u.String(), tokens(scope(u.Hostname()), newCredential), nil
}

func encrypted(sslmode string) bool {
	return sslmode == "require" || sslmode == "verify-ca" || sslmode == "verify-full"
}

func local(host string) bool {
	ip := net.ParseIP(host)
	return host == "" || host == "localhost" || ip != nil && ip.IsLoopback()
}

// scope returns the scope of tokens in the cloud of a host.
func scope(host string) string {
	suffix := "windows.net"
	for _, other := range []string{"chinacloudapi.cn", "usgovcloudapi.net"} {
		if strings.HasSuffix(host, "."+other) {
			suffix = other
		}
	}
	return "https://ossrdbms-aad.database." + suffix + "/.default"
}

func newCredential() (azcore.TokenCredential, error) {
	return azidentity.NewDefaultAzureCredential(nil)
}

// tokens returns a function that returns a token. The credential is made once, and
// caches tokens until shortly before they expire.
func tokens(scope string, connect func() (azcore.TokenCredential, error)) func(context.Context) (string, error) {
	connect = sync.OnceValues(connect)
	return func(ctx context.Context) (string, error) {
		credential, err := connect()
		if err != nil {
			return "", fmt.Errorf("default credential: %w", err)
		}
		token, err := credential.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{scope}})
		return token.Token, err
	}
}
