package formats

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
)

// ConfluentConfig is how a client signs in at a registry with Confluent's interface. The zero value
// does not sign in.
type ConfluentConfig struct {
	User, Password string
	Token          string // instead of user and password
	TLS            *tls.Config
}

// confluent is a registry with Confluent's interface.
type confluent struct{ *registryClient }

// NewConfluent returns a registry with the interface of Confluent's: bodies begin with a zero byte
// and the id of the schema, in four bytes. It connects when it is first used. With a nil config it
// does not sign in.
func NewConfluent(base string, config *ConfluentConfig) (Registry, error) {
	if err := checkRegistryURL(base); err != nil {
		return nil, err
	}
	var cfg ConfluentConfig
	if config != nil {
		cfg = *config
	}
	c := newRegistryClient(base, cfg.TLS)
	switch {
	case cfg.Token != "":
		c.authorize = func(r *http.Request) error { r.Header.Set("Authorization", "Bearer "+cfg.Token); return nil }
	case cfg.User != "":
		c.authorize = func(r *http.Request) error { r.SetBasicAuth(cfg.User, cfg.Password); return nil }
	}
	return confluent{c}, nil
}

// confluentHeader is how long the header of a body is, without the indexes of Protobuf.
const confluentHeader = 5

func (confluent) split(body []byte, _ string) (string, []byte, error) {
	if len(body) < confluentHeader || body[0] != 0 {
		return "", nil, errors.New("it does not begin with the header of a schema registry, a zero byte and the id of the schema")
	}
	return strconv.FormatUint(uint64(binary.BigEndian.Uint32(body[1:])), 10), body[confluentHeader:], nil
}

// messagePath returns the indexes of a message in its schema, which a body of Protobuf has after
// the id.
func messagePath(body []byte) ([]int, []byte, error) {
	count, n := binary.Varint(body)
	if n <= 0 || count < 0 || count > maxMessageDepth {
		return nil, nil, errors.New("its header does not say which message of the schema it is")
	}
	body = body[n:]
	if count == 0 { // short for the first message
		return []int{0}, body, nil
	}
	path := make([]int, count)
	for i := range path {
		index, n := binary.Varint(body)
		if n <= 0 || index < 0 || index > maxSchemaSize {
			return nil, nil, errors.New("its header does not say which message of the schema it is")
		}
		path[i], body = int(index), body[n:]
	}
	return path, body, nil
}

// confluentSchema is an answer of the registry.
type confluentSchema struct {
	Schema     *string
	SchemaType schemaKind
	References []struct {
		Name, Subject string
		Version       int
	}
	ErrorCode int `json:"error_code"`
}

func (c confluent) schema(ctx context.Context, id string) (*registered, error) {
	path := "/schemas/ids/" + id
	a, err := c.get(ctx, path)
	if err != nil {
		return nil, err
	}
	var s confluentSchema
	understood := a.object(&s)
	switch {
	case a.status == http.StatusNotFound && understood && s.ErrorCode/100 == http.StatusNotFound:
		return nil, &unknownSchemaError{id, c.base}
	case a.status != http.StatusOK || !understood || s.Schema == nil:
		return nil, c.refused(path, a)
	}
	r := &registered{kind: s.SchemaType, text: *s.Schema}
	if r.kind == "" {
		r.kind = kindAvro
	}
	return r, c.addReferences(ctx, r, &s, map[string]bool{}, 0)
}

// Limits of what a schema refers to.
const (
	maxReferences     = 200
	maxReferenceDepth = 20
)

// addReferences adds the schemas that s refers to, each after those that it refers to itself.
func (c confluent) addReferences(ctx context.Context, r *registered, s *confluentSchema, done map[string]bool, depth int) error {
	for _, ref := range s.References {
		if done[ref.Name] {
			continue
		}
		done[ref.Name] = true
		if len(done) > maxReferences || depth == maxReferenceDepth {
			return fmt.Errorf("its schema refers to more than %d others, or over more than %d levels", maxReferences, maxReferenceDepth)
		}
		path := fmt.Sprintf("/subjects/%s/versions/%d", url.PathEscape(ref.Subject), ref.Version)
		a, err := c.get(ctx, path)
		if err != nil {
			return err
		}
		var found confluentSchema
		if understood := a.object(&found); a.status != http.StatusOK || !understood || found.Schema == nil {
			return c.refused(path, a)
		}
		if err := c.addReferences(ctx, r, &found, done, depth+1); err != nil {
			return err
		}
		r.references = append(r.references, reference{ref.Name, *found.Schema})
		if r.size() > maxSchemaSize {
			return fmt.Errorf("its schema and those that it refers to have more than %d bytes", maxSchemaSize)
		}
	}
	return nil
}

// check asks for the schema 0, which no registry has.
func (c confluent) check(ctx context.Context) error {
	_, err := c.schema(ctx, "0")
	if _, ok := errors.AsType[*unknownSchemaError](err); ok {
		return nil
	}
	return err
}
