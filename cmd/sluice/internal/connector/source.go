package connector

import (
	"cmp"
	"regexp"
	"strings"

	"github.com/sluice-go/sluice/cmd/sluice/internal/newfile"
)

// source is how the topics are read.
type source struct {
	brokers, start, isolation, clientID string
	tls                                 bool
	sasl                                string // as a file has it
}

const consumer = "consumer.override."

// readSource translates what the connector sets for its consumer. The rest is the worker's.
func (t *translator) readSource() error {
	s := &t.source
	s.brokers = variables(t.take(consumer + "bootstrap.servers"))
	if s.brokers == "" {
		s.brokers = "${KAFKA_BROKERS}"
		t.different("bootstrap.servers", "the worker has it: set KAFKA_BROKERS to the same brokers, and add tls and sasl if the worker has security.protocol")
	} else {
		t.done(consumer+"bootstrap.servers", "source.kafka.brokers")
	}
	s.clientID = variables(t.take(consumer + "client.id"))
	t.readSecurity()
	switch reset := t.take(consumer + "auto.offset.reset"); {
	case among(reset, "", "earliest"):
		s.start = "earliest"
	case among(reset, "latest"):
		s.start = "latest"
		t.done(consumer+"auto.offset.reset", "source.start: latest")
	default:
		t.todo(consumer+"auto.offset.reset", "%s: write where a partition without a checkpoint begins as source.start", named(reset))
		s.start = "earliest"
	}
	if level := t.take(consumer + "isolation.level"); level == "read_committed" {
		t.done(consumer+"isolation.level", "source.kafka.isolation")
	} else {
		s.isolation = "read_uncommitted"
		t.done(consumer+"isolation.level", "source.kafka.isolation: read_uncommitted, as Kafka's consumers read by default")
	}
	return nil
}

var (
	jaasUser     = regexp.MustCompile(`\busername="([^"]*)"`)
	jaasPassword = regexp.MustCompile(`\bpassword="([^"]*)"`)
)

// readSecurity translates TLS and SASL. The file has no password.
func (t *translator) readSecurity() {
	protocol := strings.ToUpper(t.take(consumer + "security.protocol"))
	t.source.tls = strings.HasSuffix(protocol, "SSL")
	if protocol != "" {
		t.done(consumer+"security.protocol", "source.kafka.tls: %t", t.source.tls)
	}
	mechanism, jaas := strings.ToUpper(t.take(consumer+"sasl.mechanism")), t.take(consumer+"sasl.jaas.config")
	for _, key := range sorted(t.values) {
		if strings.HasPrefix(key, consumer+"ssl.") && !t.used[key] {
			t.used[key] = true
			if strings.Contains(key, "algorithm") || strings.Contains(key, "protocol") || strings.Contains(key, "cipher") {
				continue
			}
			t.todo(key, "source.kafka.tls takes files of PEM: ca_file, cert_file, key_file")
		}
	}
	if !strings.HasPrefix(protocol, "SASL") {
		if mechanism+jaas != "" {
			t.todo(consumer+"sasl.mechanism", "security.protocol is the worker's: add source.kafka.sasl")
		}
		return
	}
	user, password := "${KAFKA_USER}", "${KAFKA_PASSWORD}"
	if m := jaasUser.FindStringSubmatch(jaas); m != nil {
		user = variables(m[1])
	}
	if m := jaasPassword.FindStringSubmatch(jaas); m != nil && isVariable(m[1]) {
		password = variables(m[1])
	}
	login := "{user: " + newfile.WithVariables(user) + ", password: " + newfile.WithVariables(password)
	switch mechanism {
	case "PLAIN":
		t.source.sasl = "{plain: " + login + "}}"
	case "SCRAM-SHA-256":
		t.source.sasl = "{scram: " + login + ", hash: sha-256}}"
	case "SCRAM-SHA-512":
		t.source.sasl = "{scram: " + login + "}}"
	default:
		t.todo(consumer+"sasl.mechanism", "%s: write source.kafka.sasl yourself", named(cmp.Or(mechanism, "GSSAPI")))
		return
	}
	t.done(consumer+"sasl.mechanism", "source.kafka.sasl, the password in a variable")
}

// format is how values are encoded.
type format struct {
	envelope, encoding   string
	registry             string
	user, password, auth string
}

// The converters of values.
const (
	jsonConverter   = "org.apache.kafka.connect.json.JsonConverter"
	schemaConverter = "io.confluent.connect.json.JsonSchemaConverter"
	avroConverter   = "io.confluent.connect.avro.AvroConverter"
	protoConverter  = "io.confluent.connect.protobuf.ProtobufConverter"
	stringConverter = "org.apache.kafka.connect.storage.StringConverter"
	bytesConverter  = "org.apache.kafka.connect.converters.ByteArrayConverter"
)

// readFormat translates the converter of values.
func (t *translator) readFormat() error {
	f := &t.format
	converter := t.take("value.converter")
	switch converter {
	case "":
		f.envelope = "connect"
		t.different("value.converter", "the worker has it: JSON with or without schemas is assumed; if it is AvroConverter, write format: {encoding: avro, registry: …}")
		t.take("value.converter.schemas.enable")
	case jsonConverter:
		if schemas := t.take("value.converter.schemas.enable"); !strings.EqualFold(schemas, "false") {
			f.envelope = "connect"
		}
		t.done("value.converter", "JSON")
		if among(t.take("value.converter.decimal.format"), "NUMERIC") {
			t.done("value.converter.decimal.format", "decimal numbers are read as numbers")
		}
	case avroConverter, protoConverter, schemaConverter:
		t.readRegistry(map[string]string{avroConverter: "avro", protoConverter: "protobuf", schemaConverter: "json"}[converter])
		t.done("value.converter", "source.format.encoding: %s", f.encoding)
	case stringConverter, bytesConverter:
		t.different("value.converter", "values are texts or bytes, which the connector writes only after a transform that makes fields of them")
	default:
		t.todo("value.converter", "%s is not known: write source.format", named(converter))
	}
	if replaced := t.take("value.converter.replace.null.with.default"); among(replaced, "true") || replaced == "" && converter == avroConverter {
		t.different("value.converter.replace.null.with.default", "a null stays null: the connector puts the schema's default in its place; write it as the column's default")
	}
	return nil
}

// splitLogin cuts USER:PASSWORD, each of which may be a reference with a colon in it.
func splitLogin(login string) (user, password string) {
	if at := reference.FindStringIndex(login); at != nil && at[0] == 0 {
		return login[:at[1]], strings.TrimPrefix(login[at[1]:], ":")
	}
	user, password, _ = strings.Cut(login, ":")
	return user, password
}

func (t *translator) readRegistry(encoding string) {
	const at = "value.converter."
	f := &t.format
	f.encoding = encoding
	urls := list(t.take(at + "schema.registry.url"))
	if len(urls) == 0 {
		urls = []string{"${SCHEMA_REGISTRY_URL}"}
		t.different(at+"schema.registry.url", "it is not set: set SCHEMA_REGISTRY_URL")
	}
	if len(urls) > 1 {
		t.different(at+"schema.registry.url", "only the first registry is used")
	}
	f.registry = variables(urls[0])
	source := t.take(at + "basic.auth.credentials.source")
	_, login := t.first(at+"basic.auth.user.info", at+"schema.registry.basic.auth.user.info")
	user, password := splitLogin(login)
	if isVariable(login) {
		user = "${SCHEMA_REGISTRY_USER}"
		t.different(at+"basic.auth.user.info", "it is %s there: set SCHEMA_REGISTRY_USER and SCHEMA_REGISTRY_PASSWORD", outside(login))
	}
	switch {
	case among(source, "SASL_INHERIT"):
		t.todo(at+"basic.auth.credentials.source", "SASL_INHERIT: write user and password of source.format.registry.confluent")
	case user != "" || among(source, "USER_INFO"):
		f.user, f.password = cmp.Or(variables(user), "${SCHEMA_REGISTRY_USER}"), "${SCHEMA_REGISTRY_PASSWORD}"
		if isVariable(password) {
			f.password = variables(password)
		}
		t.done(at+"basic.auth.user.info", "the user is in the file, the password in a variable")
	case t.take(at+"bearer.auth.token") != "" || t.take(at+"bearer.auth.credentials.source") != "":
		f.auth = "${SCHEMA_REGISTRY_TOKEN}"
		t.done(at+"bearer.auth.token", "source.format.registry.confluent.token, in a variable")
	}
	for _, key := range sorted(t.values) {
		if strings.HasPrefix(key, at+"schema.registry.ssl.") {
			t.used[key] = true
			t.todo(key, "source.format.registry.confluent.tls takes files of PEM")
		}
	}
}
