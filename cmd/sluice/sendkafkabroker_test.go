package main_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/internal/proof/kafkatest"
)

// TestSendToBroker sends to a broker of Apache Kafka, over each of its listeners.
func TestSendToBroker(t *testing.T) {
	const n, partitions = 2000, 3
	c := kafkatest.New(t, &kafkatest.Config{Secure: true})
	dir := t.TempDir()
	keep := func(name string, pem []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	cert, key := c.ClientCertificate()
	ca := "KAFKA_CA_FILE=" + keep("ca.pem", c.Certificate())
	own := []string{ca, "KAFKA_CERT_FILE=" + keep("cert.pem", cert), "KAFKA_KEY_FILE=" + keep("key.pem", key)}
	login := func(mechanism, password string, more ...string) []string {
		return append(more, "KAFKA_SASL="+mechanism, "KAFKA_USER="+kafkatest.User, "KAFKA_PASSWORD="+password)
	}
	plain := "kafka://" + strings.Join(c.Brokers(), ",")
	to := func(scheme string, l kafkatest.Listener) string {
		return scheme + "://" + strings.Join(c.Secured(l), ",")
	}
	token, err := c.Token(kafkatest.User, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	tokenFile := keep("token", []byte(token+"\n"))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, password, _ := r.BasicAuth(); password != secret {
			w.WriteHeader(http.StatusUnauthorized)
		}
		fmt.Fprintf(w, `{"access_token":%q,"expires_in":3600}`, token)
	}))
	defer server.Close()
	bearer := func(more ...string) []string { return append(more, "KAFKA_SASL=oauthbearer") }
	client := func(password string) []string {
		return bearer(ca, "KAFKA_TOKEN_URL="+server.URL, "KAFKA_CLIENT_ID=me", "KAFKA_CLIENT_SECRET="+password)
	}
	file := writeLines(t, customers(n))

	for name, way := range map[string]struct {
		destination string
		env         []string
	}{
		"plain":         {plain, nil},
		"TLS":           {to("kafka+tls", kafkatest.TLS), []string{ca}},
		"mutual TLS":    {to("kafka+tls", kafkatest.MTLS), own},
		"PLAIN":         {to("kafka+tls", kafkatest.SASLTLS), login("plain", c.Password(), ca)},
		"SCRAM-SHA-256": {to("kafka", kafkatest.SASL), login("scram-sha-256", c.Password())},
		"SCRAM-SHA-512": {to("kafka+tls", kafkatest.SASLTLS), login("SCRAM-SHA-512", c.Password(), ca)},
		"token file":    {to("kafka", kafkatest.SASL), bearer("KAFKA_TOKEN_FILE=" + tokenFile)},
		"token server":  {to("kafka+tls", kafkatest.SASLTLS), client(secret)},
	} {
		t.Run(name, func(t *testing.T) {
			topic := "send-" + strings.ReplaceAll(name, " ", "-")
			must(t, "", way.env, "send", "--to", way.destination, "--topic", topic, "--create", "3", "--key-field", "customer", file)
			checkSent(t, recordsOf(t, c.Brokers(), topic), n, partitions)
		})
	}

	topic := c.Topic(t, 1)
	for name, way := range map[string]struct {
		destination, topic string
		env                []string
		want               []string
	}{
		"unknown topic":      {plain, "fligths", nil, []string{"topic fligths: not found", "pass --create N"}},
		"no such name":       {plain, "fli/ghts", nil, []string{"no topic can have this name"}},
		"no TLS there":       {"kafka+tls" + strings.TrimPrefix(plain, "kafka"), topic, nil, []string{"topic " + topic, "TLS"}},
		"TLS only":           {to("kafka", kafkatest.TLS), topic, nil, []string{"topic " + topic, "TLS"}},
		"no trust":           {to("kafka+tls", kafkatest.TLS), topic, nil, []string{"certificate is not valid here"}},
		"no certificate":     {to("kafka+tls", kafkatest.MTLS), topic, []string{ca}, []string{"topic " + topic}},
		"no token":           {to("kafka", kafkatest.SASL), topic, bearer("KAFKA_TOKEN_FILE=/nowhere"), []string{"topic " + topic, "no token", "open /nowhere"}},
		"wrong token":        {to("kafka", kafkatest.SASL), topic, bearer("KAFKA_TOKEN_FILE=" + keep("wrong", []byte("hunter2"))), []string{"authentication refused", "or the token"}},
		"wrong client":       {to("kafka+tls", kafkatest.SASLTLS), topic, client("hunter2"), []string{"no token", "401 Unauthorized", "check the client's id and secret"}},
		"wrong password":     {to("kafka", kafkatest.SASL), topic, login("plain", "hunter2"), []string{"authentication refused", "check the user and the password"}},
		"no authentication":  {to("kafka", kafkatest.SASL), topic, nil, []string{"topic " + topic, "authentication"}},
		"mechanism unwanted": {plain, topic, login("plain", c.Password()), []string{"the broker expects no authentication at this port"}},
	} {
		t.Run(name, func(t *testing.T) {
			code, _, errs := invoke(t, "", way.env, slices.Concat([]string{"send", "--to", way.destination, "--topic", way.topic, file})...)
			if code != 1 || strings.Count(errs, "\n") != 1 || strings.Contains(errs, c.Password()) || strings.Contains(errs, "hunter2") {
				t.Errorf("exit code %d: %s", code, errs)
			}
			for _, part := range way.want {
				if !strings.Contains(errs, part) {
					t.Errorf("no %q in %s", part, errs)
				}
			}
		})
	}
}
