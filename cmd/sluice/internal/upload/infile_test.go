package upload

import (
	"os"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/cmd/sluice/internal/newfile"
	"github.com/sluice-go/sluice/pipeline"
)

// What the environment says of a cluster is in the file too, with its secrets in variables.
func TestTopicInFile(t *testing.T) {
	for name, c := range map[string]struct {
		connection string
		env        []string
		want       string
	}{
		"plain text":  {"kafka://a:9092,b:9092", nil, `brokers: "a:9092, b:9092"`},
		"TLS":         {"kafka+tls://a:9093", nil, "tls: true\n"},
		"a file":      {"kafka+tls://a:9093", []string{"KAFKA_SERVER_NAME=k.example.com"}, "tls: {server_name: k.example.com}\n"},
		"password":    {"kafka+tls://a:9093", []string{"KAFKA_SASL=plain", "KAFKA_USER=u#", "KAFKA_PASSWORD=secret"}, `sasl: {plain: {user: "u#", password: '${KAFKA_PASSWORD}'}}`},
		"scram":       {"kafka+tls://a:9093", []string{"KAFKA_SASL=SCRAM-SHA-256", "KAFKA_USER=u", "KAFKA_PASSWORD=secret"}, "hash: sha-256"},
		"scram 512":   {"kafka://a:9092", []string{"KAFKA_SASL=scram-sha-512", "KAFKA_USER=u", "KAFKA_PASSWORD=secret"}, "sasl: {scram: {user: u"},
		"Entra ID":    {"kafka+tls://contoso.servicebus.windows.net:9093", []string{"KAFKA_SASL=entra"}, "sasl: {entra: {credential: default}}"},
		"a token":     {"kafka+tls://a:9093", []string{"KAFKA_SASL=oauthbearer", "KAFKA_TOKEN_FILE=/run/token"}, "oauthbearer: {token_file: "},
		"a server of": {"kafka+tls://a:9093", []string{"KAFKA_SASL=oauthbearer", "KAFKA_TOKEN_URL=https://login.example.com/t", "KAFKA_CLIENT_ID=id", "KAFKA_CLIENT_SECRET=secret", "KAFKA_SCOPE=s"}, "client_secret: '${KAFKA_CLIENT_SECRET}', scope: s"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, v := range c.env {
				name, value, _ := strings.Cut(v, "=")
				t.Setenv(name, value)
			}
			log, err := (&Destination{Connection: c.connection, Topic: "flights"}).InFile("flights")
			if err != nil {
				t.Fatal(err)
			}
			text := newfile.Text("flights", newfile.Choice{Source: "kafka", Target: "insert", Database: "sqlite", Partitions: "all", Filled: &newfile.Filled{
				Log: log, Tables: []newfile.Table{{Name: "flights", Columns: []newfile.Column{{Name: "n", From: "sequence", Plain: true}}}},
			}})
			if _, err := pipeline.Parse("p.yaml", []byte(text), os.LookupEnv); err != nil || !strings.Contains(text, c.want) || strings.Contains(text, "secret}") || strings.Contains(text, ": secret") {
				t.Errorf("%v\n%s", err, text)
			}
		})
	}
}

func TestHubInFile(t *testing.T) {
	for _, c := range []struct {
		destination Destination
		want        string
	}{
		{Destination{}, "connection: ${EVENTHUB_CONNECTION_STRING}\n    hub: flights\n"},
		{Destination{Connection: "env:MINE"}, "connection: ${MINE}\n"},
		{Destination{Connection: "Endpoint=sb://a;SharedAccessKeyName=k;SharedAccessKey=aw=="}, "connection: ${EVENTHUB_CONNECTION_STRING}\n"},
		{Destination{Namespace: "contoso.servicebus.windows.net"}, "namespace: contoso.servicebus.windows.net\n    credential: default\n"},
		{Destination{WebSocket: WebSocket{Enabled: true}}, "websocket: true\n"},
	} {
		log, err := c.destination.InFile("flights")
		if err != nil {
			t.Fatal(err)
		}
		text := newfile.Text("flights", newfile.Choice{Source: "eventhub", Target: "insert", Database: "sqlite", Filled: &newfile.Filled{Log: log, Tables: []newfile.Table{{}}}})
		if !strings.Contains(text, c.want) || strings.Contains(text, "aw==") {
			t.Errorf("%+v:\n%s", c.destination, text)
		}
	}
}
