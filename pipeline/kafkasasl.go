package pipeline

import (
	"context"
	"net/url"

	"github.com/sluice-go/sluice/internal/config/strictyaml"
	"github.com/sluice-go/sluice/kafka"
)

// kafkaSASL is how a client authenticates to Kafka: one of the mechanisms.
type kafkaSASL struct {
	plain        *userPassword
	scram        *userPassword
	hash         string // of scram: sha-256 or sha-512
	token        func(context.Context) (string, error)
	entra        bool   // OAUTHBEARER with Entra ID's default credential
	clientSecret string // of the server that issues tokens; empty: there is none
}

type userPassword struct{ user, password string }

// The names of SCRAM's hashes.
const (
	sha256 = "sha-256"
	sha512 = "sha-512"
)

func (c *kafkaCluster) readSASL(n strictyaml.Node) {
	s := &kafkaSASL{hash: sha512}
	ok := n.Object(strictyaml.Keys{
		"plain": func(n strictyaml.Node) { s.plain = readUser(n, nil) },
		"scram": func(n strictyaml.Node) {
			s.scram = readUser(n, strictyaml.Keys{"hash": func(n strictyaml.Node) { n.OneOf(&s.hash, sha256, sha512) }})
		},
		"oauthbearer": s.readToken,
		"entra": func(n strictyaml.Node) {
			var credential string
			s.entra = n.Object(strictyaml.Keys{"credential": func(n strictyaml.Node) { n.OneOf(&credential, "default") }}, "credential")
		},
	})
	if ok && !n.ExactlyOne("plain", "scram", "oauthbearer", "entra") {
		return
	}
	c.sasl = s
}

// readUser reads a user's name and password, and more keys.
func readUser(n strictyaml.Node, more strictyaml.Keys) *userPassword {
	u := &userPassword{}
	keys := strictyaml.Keys{
		"user":     func(n strictyaml.Node) { n.Text(&u.user) },
		"password": func(n strictyaml.Node) { readSecret(n, "KAFKA_PASSWORD", &u.password) },
	}
	for key, read := range more {
		keys[key] = read
	}
	n.Object(keys, "user", "password")
	return u
}

// readSecret reads a value that must not stand in the file itself.
func readSecret(n strictyaml.Node, variable string, to *string) bool {
	if n.Literal() != "" {
		return n.Fail("is a secret: put it into an environment variable and write ${%s}", variable)
	}
	return n.Text(to)
}

// readToken reads where tokens come from: a file, or an authorization server.
func (s *kafkaSASL) readToken(n strictyaml.Node) {
	var file, server, id, secret, scope string
	ok := n.Object(strictyaml.Keys{
		"token_file":    func(n strictyaml.Node) { n.Text(&file) },
		"token_url":     func(n strictyaml.Node) { readTokenURL(n, &server) },
		"client_id":     func(n strictyaml.Node) { n.Text(&id) },
		"client_secret": func(n strictyaml.Node) { readSecret(n, "KAFKA_CLIENT_SECRET", &secret) },
		"scope":         func(n strictyaml.Node) { n.Text(&scope) },
	})
	switch {
	case !ok:
	case file != "" && server+id+secret+scope == "":
		s.token = kafka.TokenFile(file)
	case file == "" && server != "" && id != "" && secret != "":
		s.token, s.clientSecret = (&kafka.ClientCredentials{URL: server, ID: id, Secret: secret, Scope: scope}).Token, secret
	default:
		n.Fail("needs token_file, or token_url, client_id and client_secret (with scope if the server wants it)")
	}
}

func readTokenURL(n strictyaml.Node, to *string) {
	var text string
	if !n.Text(&text) {
		return
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil {
		n.Fail("%s: write a URL, https://…", n.Shown())
		return
	}
	*to = text
}
