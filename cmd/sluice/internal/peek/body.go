package peek

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/sluice-go/sluice/blobstore"
	"github.com/sluice-go/sluice/driver"
)

// kind is what a body is.
type kind int

const (
	noBody kind = iota // null, which only Kafka has
	emptyBody
	jsonBody
	textBody
	binaryBody
)

// kindOf returns what a body is.
func kindOf(body []byte) kind {
	switch {
	case body == nil:
		return noBody
	case len(body) == 0:
		return emptyBody
	case !utf8.Valid(body):
		return binaryBody
	case json.Valid(body):
		return jsonBody
	case bytes.ContainsFunc(body, isBinary):
		return binaryBody
	}
	return textBody
}

// isBinary reports whether a character is none of a text. Escape sequences of terminals are text.
func isBinary(r rune) bool { return r < ' ' && !strings.ContainsRune("\t\n\v\f\r\x1b", r) || r == 0x7f }

// magic are the beginnings of formats.
var magic = []struct{ begin, name, read string }{
	{"\x1f\x8b", "gzip", "source.format: {compression: gzip} reads it"},
	{"\x28\xb5\x2f\xfd", "zstd", "source.format: {compression: zstd} reads it"},
	{"\x04\x22\x4d\x18", "LZ4", "no key reads it: let the producer compress with gzip or zstd"},
	{"\xff\x06\x00\x00sNaPpY", "Snappy", "no key reads it: let the producer compress with gzip or zstd"},
	{"BZh", "bzip2", "no key reads it: let the producer compress with gzip or zstd"},
	{"Obj\x01", "an Avro file", "no key reads it: let the producer send single records"},
	{"\xc3\x01", "perhaps Avro's single-object encoding", "no key reads it: let the producer send the record alone, or with the id of a registry"},
	{"PAR1", "Parquet", "no key reads it"},
	{"PK\x03\x04", "a ZIP archive", "no key reads it: let the producer compress with gzip or zstd"},
	{"\xff\xfe", "perhaps UTF-16", "no key reads it: let the producer send UTF-8"},
	{"\xfe\xff", "perhaps UTF-16", "no key reads it: let the producer send UTF-8"},
}

// azureAvro begins the content type of a body with a schema in Azure Schema Registry.
const azureAvro = "avro/binary+"

// framed are the bytes before a body with a schema in a Confluent registry: 0 and the schema's id.
const framed = 5

// mostID is the highest id of a schema that is believed without a registry.
const mostID = 1 << 24

// guess returns what a body that no one has decoded may be, and which key of a pipeline file reads
// it; empty if nothing is known.
func guess(e *driver.Event) string {
	if blobstore.IsReference(e) {
		return "a reference to a blob (claim check): source.claim_check fetches the body"
	}
	if id, is := strings.CutPrefix(e.ContentType, azureAvro); is {
		return fmt.Sprintf("Avro with the schema %s of Azure Schema Registry: source.format: {encoding: avro, registry: {azure: …}} reads it", id)
	}
	if kindOf(e.Body) != binaryBody {
		return ""
	}
	for _, m := range magic {
		if bytes.HasPrefix(e.Body, []byte(m.begin)) {
			return m.name + ": " + m.read
		}
	}
	if len(e.Body) > framed && e.Body[0] == 0 {
		if id := binary.BigEndian.Uint32(e.Body[1:framed]); id > 0 && id < mostID {
			return fmt.Sprintf("perhaps Avro or Protobuf with the schema id %d of a registry: source.format: {encoding: avro, registry: {confluent: …}} reads it", id)
		}
	}
	return "perhaps Avro or Protobuf without a schema id: source.format: {encoding: …, schema: …} reads it"
}

// dump returns a body in hexadecimal digits and as text, with so many bytes a line.
func dump(body []byte, perLine int) (lines []string) {
	for at := 0; at < len(body); at += perLine {
		part := body[at:min(at+perLine, len(body))]
		text := make([]byte, len(part))
		for i, c := range part {
			if text[i] = '.'; c >= ' ' && c < 0x7f {
				text[i] = c
			}
		}
		lines = append(lines, fmt.Sprintf("%04x  %-*s %s", at, 3*perLine, fmt.Sprintf("% x", part), text))
	}
	return lines
}
