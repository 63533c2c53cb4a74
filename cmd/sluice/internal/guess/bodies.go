package guess

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/blobstore"
)

// bodies counts what the bodies of events are, before anything is decoded.
type bodies struct {
	events              int
	null, references    int
	gzip, zstd          int // by their first bytes
	named, contradicted int // content-encoding says so; it says something else
	framed, framedJSON  int // the id of a schema in a registry of Confluent's protocol
	azure               int // with a schema in Azure Schema Registry
	schema              uint32
}

// mostID is the highest id of a schema that is believed without a registry.
const mostID = 1 << 24

// add counts an event as it was sent.
func (b *bodies) add(e *sluice.Event) {
	b.events++
	encoding, _ := e.Properties["content-encoding"].(string)
	encoding = strings.ToLower(strings.TrimSpace(encoding))
	is := ""
	switch body := e.Body; {
	case blobstore.IsReference(e):
		b.references++
		return
	case len(body) == 0:
		b.null++
		return
	case strings.HasPrefix(e.ContentType, "avro/binary+"):
		b.azure++
	case bytes.HasPrefix(body, []byte("\x1f\x8b")):
		b.gzip++
		is = "gzip"
	case bytes.HasPrefix(body, []byte("\x28\xb5\x2f\xfd")):
		b.zstd++
		is = "zstd"
	case len(body) > 5 && body[0] == 0:
		if id := binary.BigEndian.Uint32(body[1:5]); id > 0 && id < mostID {
			b.framed++
			b.schema = id
			if json.Valid(body[5:]) {
				b.framedJSON++
			}
		}
	}
	switch {
	case is != "" && encoding == is:
		b.named++
	case is != "" || encoding == "deflate":
		b.contradicted++
	}
}

// compression returns the value of source.format.compression, and how sure it is.
func (b *bodies) compression() (word, why string) {
	packed := b.gzip + b.zstd
	switch {
	case packed == 0:
		return "", ""
	case b.contradicted == 0:
		return "auto", "the property content-encoding says which bodies are compressed"
	case b.gzip == packed && packed == b.whole():
		return "gzip", "all bodies begin as gzip does"
	case b.zstd == packed && packed == b.whole():
		return "zstd", "all bodies begin as zstd does"
	}
	word = "gzip"
	if b.zstd > b.gzip {
		word = "zstd"
	}
	return word, fmt.Sprintf("%d of %d bodies are compressed, without the property content-encoding, so that others become dead letters", packed, b.whole())
}

// whole is the number of events with a body.
func (b *bodies) whole() int { return b.events - b.null - b.references }

// needed returns what must be known to read the bodies, which the events do not tell.
func (b *bodies) needed() []string {
	switch {
	case b.references > 0 && b.references == b.events-b.null:
		return []string{"All bodies are in blobs (claim check): add the container that they are in:", "  claim_check: {container: bodies, connection: '${STORAGE_CONNECTION_STRING}'}"}
	case b.azure > 0 && b.azure == b.whole():
		return []string{"The bodies are Avro, with schemas in Azure Schema Registry: add its namespace:",
			"  format: {encoding: avro, registry: {azure: {namespace: NAME.servicebus.windows.net, credential: default}}}"}
	case b.framed > 0 && b.framedJSON == b.whole():
		return []string{fmt.Sprintf("The bodies are JSON after the id of a schema (such as %d) in a registry: add its address:", b.schema),
			"  format: {registry: {confluent: {url: https://…}}}"}
	case b.framed > 0 && b.framed == b.whole():
		return []string{fmt.Sprintf("The bodies are Avro or Protobuf after the id of a schema (such as %d) in a registry: add its address:", b.schema),
			"  format: {encoding: avro, registry: {confluent: {url: https://…}}}"}
	}
	return nil
}

// envelope returns what is around the value in all bodies: "connect", "debezium" or nothing.
type envelope struct{ events, connect, debezium int }

func (v *envelope) add(body []byte) {
	if len(body) == 0 { // a tombstone
		return
	}
	v.events++
	root := membersOf(body)
	value := root
	payload, wrapped := root["payload"]
	_, schema := root["schema"]
	if wrapped = wrapped && schema && len(root) == 2; wrapped {
		value = membersOf(payload)
	}
	op, before, after, source := string(value["op"]), value["before"] != nil, value["after"] != nil, membersOf(value["source"])
	switch {
	case slices.Contains([]string{`"c"`, `"u"`, `"r"`, `"d"`, `"t"`}, op) && (before || after || op == `"t"`) && (source["connector"] != nil || source["table"] != nil):
		v.debezium++
	case wrapped:
		v.connect++
	}
}

// word returns the value of source.format.envelope, if all events have it.
func (v *envelope) word() string {
	switch {
	case v.events == 0:
	case v.debezium == v.events:
		return "debezium"
	case v.connect == v.events:
		return "connect"
	}
	return ""
}

// membersOf returns the members of an object, nil if it is none.
func membersOf(raw []byte) map[string]json.RawMessage {
	var members map[string]json.RawMessage
	if json.Unmarshal(raw, &members) != nil {
		return nil
	}
	return members
}

// keys finds the columns of the key of each row: the members of the events' keys.
type keys struct {
	names []string
	wrong bool
}

// add adds an event, whose key must have the values of the row.
func (k *keys) add(key string, row []byte) {
	members := membersOf([]byte(key))
	if payload, ok := members["payload"]; ok && members["schema"] != nil && len(members) == 2 {
		members = membersOf(payload)
	}
	values := membersOf(row)
	names := make([]string, 0, len(members))
	for name, value := range members {
		names = append(names, name)
		// Times and decimals may be spelled in another way in the row.
		if own, ok := values[name]; !ok || !bytes.Equal(bytes.TrimSpace(own), bytes.TrimSpace(value)) {
			k.wrong = true
		}
	}
	slices.Sort(names)
	if k.names == nil {
		k.names = names
	}
	k.wrong = k.wrong || len(names) == 0 || !slices.Equal(k.names, names)
}

// certain returns the members, none if an event contradicts.
func (k *keys) certain() []string {
	if k.wrong {
		return nil
	}
	return k.names
}
