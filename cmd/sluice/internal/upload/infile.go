package upload

import (
	"fmt"
	"os"
	"strings"

	"github.com/sluice-go/sluice/cmd/sluice/internal/newfile"
	"github.com/sluice-go/sluice/kafka"
)

// InFile returns how a pipeline file names the hub or topic that was read, with its secrets in
// variables.
func (d *Destination) InFile(name string) (*newfile.Log, error) {
	if d.IsKafka() {
		return d.topicInFile(name)
	}
	l := &newfile.Log{Name: name, Namespace: d.Namespace, WebSocket: d.WebSocket.Enabled}
	if d.Namespace == "" {
		variable, ok := strings.CutPrefix(d.Connection, "env:")
		if !ok {
			variable = EventHubVariable
		}
		l.Connection = "${" + variable + "}"
	}
	return l, nil
}

func (d *Destination) topicInFile(name string) (*newfile.Log, error) {
	text, err := d.connectionString()
	if err != nil {
		return nil, err
	}
	address, err := kafka.ParseURL(text)
	if err != nil {
		return nil, err
	}
	l := &newfile.Log{Name: name, Brokers: strings.Join(address.Brokers, ", ")}
	if address.TLS {
		var keys []string
		for _, k := range []struct{ key, variable string }{{"ca_file", KafkaCAVariable}, {"cert_file", KafkaCertVariable}, {"key_file", KafkaKeyVariable}, {"server_name", KafkaServerNameVariable}} {
			if value := os.Getenv(k.variable); value != "" {
				keys = append(keys, k.key+": "+newfile.Quoted(value))
			}
		}
		l.TLS = "true"
		if len(keys) > 0 {
			l.TLS = "{" + strings.Join(keys, ", ") + "}"
		}
	}
	login := fmt.Sprintf("user: %s, password: '${%s}'", newfile.Quoted(os.Getenv(KafkaUserVariable)), KafkaPasswordVariable)
	switch strings.ToLower(os.Getenv(KafkaSASLVariable)) {
	case "plain":
		l.SASL = "{plain: {" + login + "}}"
	case "scram-sha-256":
		l.SASL = "{scram: {" + login + ", hash: sha-256}}"
	case "scram-sha-512":
		l.SASL = "{scram: {" + login + "}}"
	case "entra":
		l.SASL, l.TLS = "{entra: {credential: default}}", ""
	case "oauthbearer":
		l.SASL = tokenInFile()
	}
	return l, nil
}

func tokenInFile() string {
	if file := os.Getenv(KafkaTokenFileVariable); file != "" {
		return "{oauthbearer: {token_file: " + newfile.Quoted(file) + "}}"
	}
	text := fmt.Sprintf("token_url: %s, client_id: %s, client_secret: '${%s}'", newfile.Quoted(os.Getenv(KafkaTokenURLVariable)), newfile.Quoted(os.Getenv(KafkaClientIDVariable)), KafkaClientSecretVariable)
	if scope := os.Getenv(KafkaScopeVariable); scope != "" {
		text += ", scope: " + newfile.Quoted(scope)
	}
	return "{oauthbearer: {" + text + "}}"
}
