package main_test

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/internal/proof/kafkatest"
	"github.com/sluice-go/sluice/internal/proof/need"
)

func TestFromABrokerOfKafka(t *testing.T) {
	need.Kafka(t)
	eachFastDatabase(t, func(t *testing.T, url string) { runFromKafka(t, kafkatest.Shared(t).Brokers(), url) })
}

func TestSeveralTopicsOfABroker(t *testing.T) {
	need.Kafka(t)
	k := newTopic(t, 1, kafkatest.Shared(t).Brokers())
	for _, end := range []string{".eu", ".us"} {
		if _, err := k.admin.CreateTopic(t.Context(), 2, 1, nil, k.name+end); err != nil {
			t.Fatal(err)
		}
	}
	severalTopics(t, k.name+".", kafkatest.Shared(t).Brokers())
}

func TestMoveFromAGroupOfABroker(t *testing.T) {
	need.Kafka(t)
	eachFastDatabase(t, func(t *testing.T, url string) { moveFromGroup(t, kafkatest.Shared(t).Brokers(), url) })
}

func TestImportOutsideTheLogOfABroker(t *testing.T) {
	t.Parallel()
	importOutsideTheLog(t, kafkatest.Shared(t).Brokers(), databases["sqlite"](t))
}

func TestFacesOverABroker(t *testing.T) {
	t.Parallel()
	facesOverKafka(t, kafkatest.Shared(t).Brokers())
}

func TestDemoOverABroker(t *testing.T) {
	need.Kafka(t)
	t.Parallel()
	t.Run("running", func(t *testing.T) {
		demoKafka(t, 3, "--brokers", kafkatest.Shared(t).Brokers()[0], "--topic", "demo-"+strings.ToLower(rand.Text()))
	})
	t.Run("of a release", func(t *testing.T) { demoKafka(t, 1, "--kafka-home", "../../.dev/kafka") })
}

// TestSecuredBrokers reads from brokers that want TLS and authentication, each way as a file says
// it.
func TestSecuredBrokers(t *testing.T) {
	t.Parallel()
	c := kafkatest.New(t, &kafkatest.Config{Secure: true})
	if err := c.CreateTopic(t.Context(), "flights", 1); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := func(name string, text []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	ca := file("ca.pem", c.Certificate())
	certificate, key := c.ClientCertificate()
	cert, certKey := file("client.pem", certificate), file("client.key", key)
	token, err := c.Token(kafkatest.User, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	tokenFile := file("token", []byte(token+"\n"))

	config := func(lines ...string) string {
		return kafkaExample(t, "    # tls: true", "    "+strings.Join(lines, "\n    "))
	}
	password := func(mechanism string, more ...string) []string {
		return append(append([]string{"sasl:", "  " + mechanism + ":", "    user: " + kafkatest.User}, more...), "    password: ${KAFKA_PASSWORD}")
	}
	trusting := "tls: {ca_file: " + ca + "}"
	database := databases["sqlite"](t)
	environment := func(listener kafkatest.Listener, password string) []string {
		return []string{"KAFKA_BROKERS=" + strings.Join(c.Secured(listener), ","), "DATABASE_URL=" + database, "KAFKA_PASSWORD=" + password}
	}
	for name, x := range map[string]struct {
		listener kafkatest.Listener
		config   string
	}{
		"tls":         {kafkatest.TLS, config(trusting)},
		"mtls":        {kafkatest.MTLS, config("tls: {ca_file: " + ca + ", cert_file: " + cert + ", key_file: " + certKey + "}")},
		"plain":       {kafkatest.SASLTLS, config(append(password("plain"), trusting)...)},
		"scram":       {kafkatest.SASL, config(password("scram")...)},
		"scram 256":   {kafkatest.SASLTLS, config(append(password("scram", "    hash: sha-256"), trusting)...)},
		"oauthbearer": {kafkatest.SASL, config("sasl: {oauthbearer: {token_file: " + tokenFile + "}}")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			must(t, "", environment(x.listener, c.Password()), "check", "--connect", x.config)
		})
	}
	for name, x := range map[string]struct {
		listener kafkatest.Listener
		config   string
		want     string
	}{
		"wrong password, scram": {kafkatest.SASL, config(password("scram")...), "check the user and the password"},
		"wrong password, plain": {kafkatest.SASL, config(password("plain")...), "check the user and the password"},
		"no token":              {kafkatest.SASL, config("sasl: {oauthbearer: {token_file: " + filepath.Join(dir, "nowhere") + "}}"), "token: open " + dir},
		"no authentication":     {kafkatest.SASL, config("tls: false"), "the broker closed the connection"},
		"unknown authority":     {kafkatest.TLS, config("tls: true"), "certificate is not valid here"},
		"no TLS there":          {kafkatest.SASL, config(append(password("scram"), trusting)...), "check the port, and whether its listener expects TLS"},
		"no TLS here":           {kafkatest.TLS, config("tls: false"), "the broker expects TLS at this port"},
		"no certificate":        {kafkatest.MTLS, config(trusting), "source.kafka: topic flights: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			failsCheck(t, environment(x.listener, secret), x.config, "kafka.yaml:", "source.kafka: topic flights: ", x.want)
		})
	}
}
