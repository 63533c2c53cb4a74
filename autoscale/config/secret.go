package config

import (
	"net/http"
	"regexp"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/sluice-go/sluice/internal/strictyaml"
)

// Secrets that stand in the file itself; those of emulators are none.
var (
	password = regexp.MustCompile(`(?i)://[^/@:]*:[^@]+@|[?&](?:ssl)?password=[^&]`)
	key      = regexp.MustCompile(`(?i)(?:SharedAccess(?:Key|Signature)|AccountKey)\s*=\s*[^;\s]`)
	emulator = regexp.MustCompile(`(?i)UseDevelopment(?:Emulator|Storage)\s*=\s*true|AccountName\s*=\s*devstoreaccount1`)
)

// readSecret reads a value that may come from the environment alone, where it
// holds a secret.
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

// readKey reads a value that is nothing but a secret.
func readKey(variable string, to *string) func(strictyaml.Node) {
	return func(n strictyaml.Node) {
		if n.Literal() != "" {
			n.Fail("holds a key: put it into an environment variable and write ${%s}", variable)
			return
		}
		n.Text(to)
	}
}

// readAuthorization reads what to send as Authorization: a scheme, and a
// variable.
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

// credential is Entra ID's, of the environment; nil if none is asked for.
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
