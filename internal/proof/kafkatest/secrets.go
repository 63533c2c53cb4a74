//go:build unix

package kafkatest

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/sluice-go/sluice/internal/selfsigned"
)

// Listener is a kind of listener on which clients must authenticate themselves or the broker.
type Listener string

// The listeners of a cluster with Config.Secure.
const (
	TLS     Listener = "TLS"     // a certificate of the broker, for 127.0.0.1
	MTLS    Listener = "MTLS"    // certificates of both
	SASL    Listener = "SASL"    // PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER, without TLS
	SASLTLS Listener = "SASLTLS" // the same with TLS
)

// secured are the protocols of the listeners.
var secured = map[Listener]string{TLS: "SSL", MTLS: "SSL", SASL: "SASL_PLAINTEXT", SASLTLS: "SASL_SSL"}

const (
	// User is the user of PLAIN and SCRAM.
	User = "sluice"
	// Audience is the audience of tokens for OAUTHBEARER.
	Audience = "kafkatest"
	issuer   = "https://issuer.kafkatest.invalid/"
	keysFile = "keys.json"
)

// secrets are what clients and brokers authenticate themselves with.
type secrets struct {
	broker, client *selfsigned.Certificate
	password       string
	signer         *rsa.PrivateKey
	keys           []byte // the public part of signer, as a JSON Web Key Set
}

func newSecrets() (s *secrets, err error) {
	s = &secrets{password: rand.Text()}
	now := time.Now()
	s.broker, err = selfsigned.New(&selfsigned.Config{CommonName: "kafkatest", Hosts: []string{"127.0.0.1"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour), Root: true})
	if err != nil {
		return nil, err
	}
	if s.client, err = clientCertificate(now); err != nil {
		return nil, err
	}
	if s.signer, err = rsa.GenerateKey(rand.Reader, 2048); err != nil {
		return nil, err
	}
	number := base64.RawURLEncoding.EncodeToString
	s.keys, err = json.Marshal(map[string]any{"keys": []any{map[string]string{
		"kty": "RSA", "use": "sig", "alg": "RS256", "kid": "1",
		"n": number(s.signer.N.Bytes()), "e": number(big.NewInt(int64(s.signer.E)).Bytes()),
	}}})
	return s, err
}

// clientCertificate makes a certificate of a client, whose user is CN=sluice.
func clientCertificate(now time.Time) (*selfsigned.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: User}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return &selfsigned.Certificate{
		Certificate: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key},
		CertPEM:     pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		KeyPEM:      pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
	}, nil
}

// properties are the lines of server.properties about the secured listeners.
func (s *secrets) properties(listeners map[string]listener, keys string) []string {
	value := func(text []byte) string { return strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", `\n`) }
	const module = "org.apache.kafka.common.security."
	lines := []string{
		"ssl.keystore.type=PEM",
		"ssl.keystore.certificate.chain=" + value(s.broker.CertPEM),
		"ssl.keystore.key=" + value(s.broker.KeyPEM),
		"ssl.truststore.type=PEM",
		"ssl.truststore.certificates=" + value(s.client.CertPEM),
		"listener.name.mtls.ssl.client.auth=required",
		"sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
		// The default checks no signature where the keys are those of a listener.
		"sasl.oauthbearer.jwt.validator.class=" + module + "oauthbearer.BrokerJwtValidator",
	}
	for name, l := range listeners {
		if !strings.HasPrefix(l.protocol, "SASL_") {
			continue
		}
		name = "listener.name." + strings.ToLower(name) + "."
		lines = append(lines,
			name+`plain.sasl.jaas.config=`+module+`plain.PlainLoginModule required user_`+User+`="`+s.password+`";`,
			name+`scram-sha-256.sasl.jaas.config=`+module+`scram.ScramLoginModule required;`,
			name+`scram-sha-512.sasl.jaas.config=`+module+`scram.ScramLoginModule required;`,
			name+`oauthbearer.sasl.jaas.config=`+module+`oauthbearer.OAuthBearerLoginModule required;`,
			name+`oauthbearer.sasl.oauthbearer.jwks.endpoint.url=file://`+keys,
			name+`oauthbearer.sasl.oauthbearer.expected.audience=`+Audience,
			name+`oauthbearer.sasl.oauthbearer.expected.issuer=`+issuer,
			name+`oauthbearer.sasl.server.callback.handler.class=`+module+`oauthbearer.OAuthBearerValidatorCallbackHandler`,
		)
	}
	return lines
}

// addUsers adds the user of SCRAM, which the cluster keeps in its metadata.
func (c *Cluster) addUsers(ctx context.Context) error {
	for _, mechanism := range []kadm.ScramMechanism{kadm.ScramSha256, kadm.ScramSha512} {
		users, err := c.admin.AlterUserSCRAMs(ctx, nil, []kadm.UpsertSCRAM{{User: User, Mechanism: mechanism, Iterations: 4096, Password: c.secrets.password}})
		if err == nil {
			err = users.Error()
		}
		if err != nil {
			return fmt.Errorf("add a user of SCRAM: %w", err)
		}
	}
	return await(ctx, "the user of SCRAM is there", func() (bool, error) {
		users, err := c.admin.DescribeUserSCRAMs(ctx, User)
		return len(users[User].CredInfos) == 2, err
	})
}

// Secured are the addresses of a secured listener of the brokers.
func (c *Cluster) Secured(l Listener) []string { return c.addresses(string(l)) }

// Password is that of [User].
func (c *Cluster) Password() string { return c.secrets.password }

// Certificate is the brokers' certificate, in PEM, which clients have to trust.
func (c *Cluster) Certificate() []byte { return c.secrets.broker.CertPEM }

// ClientCertificate is the certificate of a client, and its key, in PEM.
func (c *Cluster) ClientCertificate() (certificate, key []byte) {
	return c.secrets.client.CertPEM, c.secrets.client.KeyPEM
}

// TLS is the configuration of a client that trusts the brokers, and has a certificate of its own
// where mutual.
func (c *Cluster) TLS(mutual bool) *tls.Config {
	cfg := &tls.Config{RootCAs: c.secrets.broker.Pool(), MinVersion: tls.VersionTLS12}
	if mutual {
		cfg.Certificates = []tls.Certificate{c.secrets.client.Certificate}
	}
	return cfg
}

// Token makes a signed JSON Web Token for OAUTHBEARER, which is valid for a time from now on.
func (c *Cluster) Token(subject string, valid time.Duration) (string, error) {
	now := time.Now()
	claims, err := json.Marshal(map[string]any{
		"iss": issuer, "aud": Audience, "sub": subject, "scope": "kafka",
		"iat": now.Add(-time.Minute).Unix(), "exp": now.Add(valid).Unix(),
	})
	if err != nil {
		return "", err
	}
	encode := base64.RawURLEncoding.EncodeToString
	text := encode([]byte(`{"alg":"RS256","kid":"1","typ":"JWT"}`)) + "." + encode(claims)
	digest := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(rand.Reader, c.secrets.signer, crypto.SHA256, digest[:])
	if err != nil {
		return "", fmt.Errorf("sign a token: %w", err)
	}
	return text + "." + encode(signature), nil
}
