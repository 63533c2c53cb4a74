package pipeline

import (
	"crypto/tls"
	"fmt"
	"net/url"
	"regexp"

	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/sluice-go/sluice/internal/config/strictyaml"
	"github.com/sluice-go/sluice/pipeline/formats"
)

// maxDecoded is the largest value of max_size.
const maxDecoded = 256 << 20

// bodyFormat is source.format: how bodies are encoded.
type bodyFormat struct {
	node                        strictyaml.Node
	compression, encoding       string
	envelope                    string
	maxSize                     int
	schema, message, importPath optionalText
	registry                    formats.Registry
	registryAt, azureAt         *strictyaml.Node // nil: the key is not given
}

// optionalText is the value of a key that need not be given.
type optionalText struct {
	node *strictyaml.Node
	text string
}

func (o *optionalText) read(n strictyaml.Node) {
	o.node = &n
	n.Text(&o.text)
}

// readFormat reads source.format.
func (r *reader) readFormat(n strictyaml.Node) {
	f := bodyFormat{node: n}
	ok := n.Object(strictyaml.Keys{
		"compression": func(n strictyaml.Node) {
			n.OneOf(&f.compression, string(formats.Gzip), string(formats.Deflate), string(formats.Zstd), string(formats.Auto))
		},
		"envelope": func(n strictyaml.Node) {
			n.OneOf(&f.envelope, string(formats.Connect), string(formats.Debezium))
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
	cfg := formats.Config{Compression: formats.Compression(f.compression), Envelope: formats.Envelope(f.envelope), MaxSize: f.maxSize, NullBodies: r.System == Kafka}
	switch f.encoding {
	case "avro":
		cfg.Encoding = f.avro()
	case "protobuf":
		cfg.Encoding = f.protobuf()
	default:
		refuse("goes with encoding: avro or encoding: protobuf: remove it", f.schema.node, f.message.node, f.importPath.node)
		refuse("goes with encoding: avro: remove it, the schema of JSON is not needed", f.azureAt)
		switch {
		case f.encoding == "json_lines":
			refuse("goes without encoding: json_lines: remove it", f.registryAt)
			cfg.Encoding = formats.JSONLines()
		case f.registryAt != nil:
			cfg.Encoding = formats.JSONFrom(f.registry)
		}
	}
	r.places.format = n.Place()
	if f.registryAt != nil {
		r.places.format = f.registryAt.Place()
	}
	if cfg.Compression != "" || cfg.Encoding != nil || cfg.Envelope != "" {
		r.body.format = formats.New(&cfg)
	}
}

// avro returns the encoding, nil if there is a problem.
func (f *bodyFormat) avro() formats.Encoding {
	refuse("goes with encoding: protobuf: remove it", f.message.node, f.importPath.node)
	var schema *formats.AvroSchema
	if f.schema.node != nil {
		data, err := formats.ReadSchemaFile(f.schema.text)
		if err == nil {
			if schema, err = formats.ParseAvro(string(data)); err != nil {
				err = fmt.Errorf("%s: not a schema of Avro: %w", f.schema.text, err)
			}
		}
		if err != nil {
			f.schema.node.Fail("%w", err)
			return nil
		}
	}
	switch {
	case f.registryAt != nil:
		return formats.AvroFrom(f.registry, schema)
	case schema == nil:
		f.node.Fail("encoding: avro needs schema (the path of an .avsc file), or registry, or both")
		return nil
	}
	return formats.Avro(schema)
}

// protobuf returns the encoding, nil if there is a problem.
func (f *bodyFormat) protobuf() formats.Encoding {
	if f.registryAt != nil {
		refuse("does not go with registry, which has the schema of each body: remove one of them", f.schema.node, f.message.node, f.importPath.node)
		if f.azureAt != nil {
			f.azureAt.Fail("goes with encoding: avro: events do not name a schema of Protobuf in Azure Schema Registry")
		}
		return formats.ProtobufFrom(f.registry)
	}
	if f.schema.node == nil || f.message.node == nil {
		f.node.Fail("encoding: protobuf needs schema (the path of a .proto file or of a descriptor set) and message (such as pkg.Flight), or registry")
		return nil
	}
	schema, err := formats.ReadProto(f.schema.text, f.importPath.text)
	if err != nil {
		f.schema.node.Fail("%w", err)
		return nil
	}
	encoding, err := formats.Protobuf(schema, f.message.text)
	if err == nil {
		return encoding
	}
	f.message.node.Fail("%w", err)
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
	var at strictyaml.Node
	var cfg formats.ConfluentConfig
	ok := n.Object(strictyaml.Keys{
		"url": func(n strictyaml.Node) {
			if n.Text(&address) {
				at = n
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
	if f.registry, err = formats.NewConfluent(address, &cfg); err != nil {
		at.Fail("%w", err)
	}
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
	f.registry = formats.NewAzure(namespace, credential, config)
}
