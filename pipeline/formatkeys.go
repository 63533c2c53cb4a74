package pipeline

import (
	"crypto/tls"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/sluice-go/sluice/internal/config/strictyaml"
	"github.com/sluice-go/sluice/internal/humanize"
	"github.com/sluice-go/sluice/pipeline/internal/decode"
)

// maxDecoded is the largest value of max_size.
const maxDecoded = 256 << 20

// bodyFormat is source.format: how bodies are encoded.
type bodyFormat struct {
	at                          strictyaml.Node
	compression, encoding       string
	envelope                    string
	maxSize                     int
	schema, message, importPath optionalText
	registry                    decode.Registry
	registryAt, azureAt         *strictyaml.Node // nil: the key is not given
}

// optionalText is the value of a key that need not be given.
type optionalText struct {
	at   *strictyaml.Node
	text string
}

func (o *optionalText) read(n strictyaml.Node) {
	o.at = &n
	n.Text(&o.text)
}

// readFormat reads source.format.
func (r *reader) readFormat(n strictyaml.Node) {
	f := bodyFormat{at: n}
	ok := n.Object(strictyaml.Keys{
		"compression": func(n strictyaml.Node) {
			n.OneOf(&f.compression, string(decode.Gzip), string(decode.Deflate), string(decode.Zstd), string(decode.Auto))
		},
		"envelope": func(n strictyaml.Node) {
			n.OneOf(&f.envelope, string(decode.Connect), string(decode.Debezium))
		},
		"max_size":    func(n strictyaml.Node) { n.SizeIn(&f.maxSize, 1, maxDecoded) },
		"encoding":    func(n strictyaml.Node) { n.OneOf(&f.encoding, "json", "json_lines", "avro", "protobuf") },
		"schema":      f.schema.read,
		"message":     f.message.read,
		"import_path": f.importPath.read,
		"registry":    f.readRegistry,
	})
	if !ok {
		return
	}
	cfg := decode.Config{Compression: decode.Compression(f.compression), Envelope: decode.Envelope(f.envelope), MaxSize: f.maxSize, NullBodies: r.System == Kafka}
	switch f.encoding {
	case "avro":
		cfg.Encoding = f.avro()
	case "protobuf":
		cfg.Encoding = f.protobuf()
	default:
		refuse("goes with encoding: avro or encoding: protobuf: remove it", f.schema.at, f.message.at, f.importPath.at)
		refuse("goes with encoding: avro: remove it, the schema of JSON is not needed", f.azureAt)
		switch {
		case f.encoding == "json_lines":
			refuse("goes without encoding: json_lines: remove it", f.registryAt)
			cfg.Encoding = decode.JSONLines()
		case f.registryAt != nil:
			cfg.Encoding = decode.JSONFrom(f.registry)
		}
	}
	r.places.format = n.Place()
	if f.registryAt != nil {
		r.places.format = f.registryAt.Place()
	}
	if cfg.Compression != decode.None || cfg.Encoding != nil || cfg.Envelope != decode.NoEnvelope {
		r.body.format = decode.New(cfg)
	}
}

// avro returns the encoding, nil if there is a problem.
func (f *bodyFormat) avro() decode.Encoding {
	refuse("goes with encoding: protobuf: remove it", f.message.at, f.importPath.at)
	var schema *decode.AvroSchema
	if f.schema.at != nil {
		data, err := decode.ReadSchemaFile(f.schema.text)
		if err == nil {
			if schema, err = decode.ParseAvro(string(data)); err != nil {
				err = fmt.Errorf("%s: not a schema of Avro: %w", f.schema.text, err)
			}
		}
		if err != nil {
			f.schema.at.Fail("%w", err)
			return nil
		}
	}
	switch {
	case f.registryAt != nil:
		return decode.AvroFrom(f.registry, schema)
	case schema == nil:
		f.at.Fail("encoding: avro needs schema (the path of an .avsc file), or registry, or both")
		return nil
	}
	return decode.Avro(schema)
}

// protobuf returns the encoding, nil if there is a problem.
func (f *bodyFormat) protobuf() decode.Encoding {
	if f.registryAt != nil {
		refuse("does not go with registry, which has the schema of each body: remove one of them", f.schema.at, f.message.at, f.importPath.at)
		if f.azureAt != nil {
			f.azureAt.Fail("goes with encoding: avro: events do not name a schema of Protobuf in Azure Schema Registry")
		}
		return decode.ProtobufFrom(f.registry)
	}
	if f.schema.at == nil || f.message.at == nil {
		f.at.Fail("encoding: protobuf needs schema (the path of a .proto file or of a descriptor set) and message (such as pkg.Flight), or registry")
		return nil
	}
	schema, err := decode.ReadProto(f.schema.text, f.importPath.text)
	if err != nil {
		f.schema.at.Fail("%w", err)
		return nil
	}
	encoding, ok := decode.Protobuf(schema, f.message.text)
	if ok {
		return encoding
	}
	names := schema.Messages()
	slices.Sort(names)
	if near := humanize.Nearest(f.message.text, names); near != "" {
		f.message.at.Fail("%s is not a message of the schema, did you mean %s?", f.message.at.Shown(), near)
		return nil
	}
	const most = 10
	if len(names) > most {
		names = append(names[:most], "…")
	}
	f.message.at.Fail("%s is not a message of the schema: it has %s", f.message.at.Shown(), strings.Join(names, ", "))
	return nil
}

// readRegistry reads source.format.registry.
func (f *bodyFormat) readRegistry(n strictyaml.Node) {
	f.registryAt = &n
	if n.Object(strictyaml.Keys{"confluent": f.readConfluent, "azure": f.readAzure}) {
		n.ExactlyOne("confluent", "azure")
	}
}

func (f *bodyFormat) readConfluent(n strictyaml.Node) {
	var address string
	var cfg decode.ConfluentConfig
	ok := n.Object(strictyaml.Keys{
		"url": func(n strictyaml.Node) {
			if n.Text(&address) {
				if err := decode.CheckRegistryURL(address); err != nil {
					n.Fail("%w", err)
				}
			}
		},
		"user":     func(n strictyaml.Node) { n.Text(&cfg.User) },
		"password": func(n strictyaml.Node) { readSecret(n, "SCHEMA_REGISTRY_PASSWORD", &cfg.Password) },
		"token":    func(n strictyaml.Node) { readSecret(n, "SCHEMA_REGISTRY_TOKEN", &cfg.Token) },
		"tls":      func(n strictyaml.Node) { cfg.TLS = readTLS(n) },
	}, "url")
	if !ok {
		return
	}
	u, err := url.Parse(address)
	switch plain := err == nil && u.Scheme == "http"; {
	case (cfg.User != "") != (cfg.Password != ""):
		n.Fail("user and password go together")
	case cfg.User != "" && cfg.Token != "":
		n.Fail("needs user and password, or token, not both")
	case plain && cfg.User+cfg.Token != "":
		n.Fail("credentials need a URL that begins with https: they must not be sent unencrypted")
	case plain && cfg.TLS != nil:
		n.Fail("tls needs a URL that begins with https")
	}
	f.registry = decode.NewConfluent(address, cfg)
}

var hostName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.-]*(:[0-9]+)?$`)

func (f *bodyFormat) readAzure(n strictyaml.Node) {
	f.azureAt = &n
	var namespace, word string
	var config *tls.Config
	ok := n.Object(strictyaml.Keys{
		"namespace": func(n strictyaml.Node) {
			if n.Text(&namespace) && !hostName.MatchString(namespace) {
				n.Fail("must be a host like contoso.servicebus.windows.net")
			}
		},
		"credential": func(n strictyaml.Node) { n.OneOf(&word, "default") },
		"tls":        func(n strictyaml.Node) { config = readTLS(n) },
	}, "namespace", "credential")
	if !ok {
		return
	}
	credential, err := azidentity.NewDefaultAzureCredential(nil)
	if err != nil {
		n.Fail("default credential: %w", err)
		return
	}
	f.registry = decode.NewAzure(namespace, credential, config)
}
