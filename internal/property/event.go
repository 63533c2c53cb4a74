package property

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sluice-go/sluice/driver"
)

// extra is what an event may have beside its properties, in a log such as Kafka, and what stores
// have no columns for. It is a member of its own in the JSON of the properties, {"event": …}, under
// a name that no property has: no other value has that tag.
type extra struct {
	Key      []byte    `json:"key,omitempty"` // if it is no text
	EmptyKey bool      `json:"empty_key,omitempty"`
	NullBody bool      `json:"null_body,omitempty"`
	Created  time.Time `json:"created,omitzero"`
	Headers  []header  `json:"headers,omitempty"`
	// Undecodable is why the driver could not decode the event.
	Undecodable string `json:"undecodable,omitempty"`
}

type header struct {
	Name  string `json:"name"`
	Bytes []byte `json:"name_bytes,omitempty"` // of a name that is no text
	Value []byte `json:"value"`
}

const (
	besideTag  = "event"
	besideName = "sluice-event"
)

// EncodeEvent returns as JSON what stores have no columns for of a dead letter's event: the
// properties, and in some logs headers, a key that is no text, an empty key, a null value and the
// sender's time. It returns nil if there is none of that. A property of a type that AMQP does not
// have is an error.
func EncodeEvent(e *driver.Event) ([]byte, error) {
	rest := extraOf(e)
	if rest == nil {
		return Encode(e.Properties)
	}
	out, err := tagged(e.Properties)
	if err != nil {
		return nil, err
	}
	name := besideName
	for _, taken := out[name]; taken; _, taken = out[name] {
		name += "-"
	}
	out[name] = map[string]any{besideTag: rest}
	return json.Marshal(out)
}

// extraOf returns what an event has beside its properties, nil if nothing.
func extraOf(e *driver.Event) *extra {
	b := &extra{EmptyKey: e.EmptyKey, NullBody: e.Body == nil, Created: e.Created, Undecodable: e.Undecodable}
	if !isText(e.Key) {
		b.Key = []byte(e.Key)
	}
	for _, h := range e.Headers {
		stored := header{Name: h.Name, Value: h.Value}
		if !isText(h.Name) {
			stored.Bytes = []byte(h.Name)
		}
		b.Headers = append(b.Headers, stored)
	}
	if b.Key == nil && b.Headers == nil && !b.EmptyKey && !b.NullBody && b.Created.IsZero() && b.Undecodable == "" {
		return nil
	}
	return b
}

// isText reports whether every store keeps a text as it is.
func isText(s string) bool {
	return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0
}

// DecodeEvent gives an event, whose body and columns are set, what [EncodeEvent] returned.
func DecodeEvent(data []byte, e *driver.Event) error {
	var in map[string]any
	if len(data) > 0 {
		if err := json.Unmarshal(data, &in); err != nil {
			return fmt.Errorf("properties: %w", err)
		}
	}
	if e.Body == nil {
		e.Body = []byte{}
	}
	for name, value := range in {
		m, is := value.(map[string]any)
		if !is || len(m) != 1 || m[besideTag] == nil {
			continue
		}
		if err := decodeBeside(m[besideTag], e); err != nil {
			return err
		}
		delete(in, name)
		break
	}
	if len(in) == 0 {
		return nil
	}
	var err error
	e.Properties, err = untagged(in)
	return err
}

func decodeBeside(value any, e *driver.Event) error {
	data, err := json.Marshal(value)
	var b extra
	if err == nil {
		err = json.Unmarshal(data, &b)
	}
	if err != nil {
		return fmt.Errorf("headers and key: %w", err)
	}
	e.EmptyKey, e.Created, e.Undecodable = b.EmptyKey, b.Created, b.Undecodable
	if b.NullBody {
		e.Body = nil
	}
	if b.Key != nil {
		e.Key = string(b.Key)
	}
	for _, h := range b.Headers {
		if h.Bytes != nil {
			h.Name = string(h.Bytes)
		}
		e.Headers = append(e.Headers, driver.Header{Name: h.Name, Value: h.Value})
	}
	return nil
}
