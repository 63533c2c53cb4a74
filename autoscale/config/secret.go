package config

import (
	"net/http"
	"regexp"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/sluice-go/sluice/internal/config/strictyaml"
)

// Patterns of secrets in the file itself. The keys of emulators are public.
var (
	password = regexp.MustCompile(`(?i)://[^/@:]*:[^@]+@|[?&](?:ssl)?password=[^&]`)
	key      = regexp.MustCompile(`(?i)(?:SharedAccess(?:Key|Signature)|AccountKey|[?&]sig)\s*=\s*[^;\s]`)
	emulator = regexp.MustCompile(`(?i)UseDevelopment(?:Emulator|Storage)\s*=\s*true|AccountName\s*=\s*devstoreaccount1`)
)

// readSecret reads a value that may hold a secret, which must then come from the
// environment.
func readSecret(variable string, to *string) func(strictyaml.Node) {
	return func(n strictyaml.Node) {
		literal := n.Literal()
		if password.MatchString(literal) || key.MatchString(literal) && !emulator.MatchString(literal) {
			n.Fail("holds a secret: put it into an environment variable and write ${%s}", variable)
			return
		}
		n.Text(to)
	}
}

// readKey reads a value that is a secret as a whole.
func readKey(variable string, to *string) func(strictyaml.Node) {
	return func(n strictyaml.Node) {
		if n.Literal() != "" {
			n.Fail("holds a key: put it into an environment variable and write ${%s}", variable)
			return
		}
		n.Text(to)
	}
}

// readAuthorization reads the header Authorization: a scheme, and a variable.
func readAuthorization(to *http.Header) func(strictyaml.Node) {
	return func(n strictyaml.Node) {
		switch strings.TrimSpace(n.Literal()) {
		case "", "Bearer", "Basic", "Token":
		default:
			n.Fail("holds a secret: put it into an environment variable and write Bearer ${TOKEN}")
			return
		}
		var text string
		if n.Text(&text) {
			*to = http.Header{"Authorization": {text}}
		}
	}
}

// readCredential reads `credential: default`.
func readCredential(to *string) func(strictyaml.Node) {
	return func(n strictyaml.Node) { n.OneOf(to, "default") }
}

// credential returns the Entra ID credential of the environment, nil if asked is
// empty.
func credential(asked string) (azcore.TokenCredential, error) {
	if asked == "" {
		return nil, nil
	}
	c, err := azidentity.NewDefaultAzureCredential(nil)
	if err != nil {
		return nil, err
	}
	return c, nil
}
