package formats

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/twmb/avro"
)

// AvroSchema is a schema of Avro, with which the values of logical types are read as JSON has them.
type AvroSchema struct {
	schema *avro.Schema // nil of one that has been resolved
	typ    *avroType
	step   *avroStep
}

// ParseAvro parses the text of a schema file (.avsc).
func ParseAvro(text string) (*AvroSchema, error) {
	schema, err := avro.Parse(withoutInvalid(text), logicalTypes...)
	if err != nil {
		return nil, oneLine(err, "avro: ")
	}
	return newAvroSchema(schema, true)
}

// newAvroSchema returns a schema; see [typesOf].
func newAvroSchema(schema *avro.Schema, fallbacks bool) (*AvroSchema, error) {
	typ, err := typesOf(schema, fallbacks)
	if err != nil {
		return nil, err
	}
	return &AvroSchema{schema, typ, newAvroPlan().stepOf(typ)}, nil
}

// Avro returns the encoding of bodies that are a record of the schema, in Avro's binary encoding
// without a header.
func Avro(schema *AvroSchema) Encoding { return avroEncoding{schema} }

type avroEncoding struct{ *AvroSchema }

func (avroEncoding) check(context.Context) error { return nil }

func (e avroEncoding) json(_ context.Context, body []byte, _ string, limit int) ([]byte, error) {
	return e.decode(body, limit)
}

// decode returns the value in body as JSON.
func (s *AvroSchema) decode(body []byte, limit int) ([]byte, error) {
	return s.step.decode(body, limit)
}

// misfit returns an error of the library as the field and what is wrong with it.
func misfit(err error) error {
	var field string
	if of, ok := errors.AsType[*avro.SemanticError](err); ok && of.Err != nil {
		field, err = of.Field, of.Err
	}
	if short, ok := errors.AsType[*avro.ShortBufferError](err); ok {
		err = fmt.Errorf("it ends within a value (%s)", short.Type)
	}
	if err = oneLine(err, "avro: "); field != "" {
		err = oneLine(fmt.Errorf("field %s: %w", field, err), "")
	}
	return err
}

// resolve returns a schema that reads what was written with writer. nil stands for writer itself.
func (s *AvroSchema) resolve(writer *AvroSchema) (*AvroSchema, error) {
	if s == nil {
		return &AvroSchema{step: writer.step}, nil // which is kept; the rest may be large
	}
	if _, err := avro.Resolve(writer.schema, s.schema); err != nil {
		return nil, noResolution(oneLine(err, "avro: "))
	}
	if bytes.Equal(writer.schema.Canonical(), s.schema.Canonical()) { // but for annotations
		return s, nil
	}
	step, err := newAvroPlan().resolve(s.typ, writer.typ)
	if err != nil {
		return nil, noResolution(oneLine(err, ""))
	}
	return &AvroSchema{step: step}, nil
}

func noResolution(err error) error {
	return fmt.Errorf("the schema that it was written with does not resolve to the schema of the file: %w", err)
}

// oneLine returns an error of a library with a text of one line of bounded length.
func oneLine(err error, prefix string) error {
	text := strings.TrimPrefix(strings.Join(strings.Fields(err.Error()), " "), prefix) // some have non-breaking spaces
	const most = 200
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return errors.New(text)
}
