package formats

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

// maxSchemaSize bounds a schema: a file, or an answer of a registry.
const maxSchemaSize = 4 << 20

// ReadSchemaFile reads a file with a schema, of bounded size.
func ReadSchemaFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxSchemaSize+1))
	if err == nil && len(data) > maxSchemaSize {
		err = fmt.Errorf("%s: has more than %d bytes", path, maxSchemaSize)
	}
	return data, err
}

// ReadProto reads a schema: a file in Protobuf's language (.proto), or a descriptor set, as
// `protoc --include_imports --descriptor_set_out` writes it. Imports of a .proto are searched below
// importPath, its own directory if that is empty.
func ReadProto(path, importPath string) (*ProtoSchema, error) {
	if filepath.Ext(path) != ".proto" {
		data, err := ReadSchemaFile(path)
		if err != nil {
			return nil, err
		}
		return parseDescriptors(path, data)
	}
	if importPath == "" {
		importPath = filepath.Dir(path)
	}
	name, err := filepath.Rel(importPath, path)
	if err != nil || strings.HasPrefix(name, "..") {
		return nil, fmt.Errorf("%s is not below the import path %s", path, importPath)
	}
	return compile(filepath.ToSlash(name), func(name string) ([]byte, error) {
		return ReadSchemaFile(filepath.Join(importPath, filepath.FromSlash(name)))
	})
}

// parseDescriptors parses a descriptor set.
func parseDescriptors(path string, data []byte) (*ProtoSchema, error) {
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(data, &set); err != nil || len(set.File) == 0 {
		return nil, fmt.Errorf("%s: not a descriptor set: write one by protoc --include_imports --descriptor_set_out, or name a .proto file", path)
	}
	files, err := protodesc.NewFiles(&set)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: write the descriptor set with --include_imports", path, oneLine(err, "proto: "))
	}
	return newProtoSchema(files, nil), nil
}

func newProtoSchema(files *protoregistry.Files, main protoreflect.FileDescriptor) *ProtoSchema {
	return &ProtoSchema{files: files, main: main, types: dynamicpb.NewTypes(files)}
}

// builtIn are the files that clients of Confluent's registry know without a reference.
var builtIn = map[string]string{
	"confluent/meta.proto": `syntax = "proto3";
package confluent;
import "google/protobuf/descriptor.proto";
message Meta { string doc = 1; map<string, string> params = 2; repeated string tags = 3; }
extend google.protobuf.FileOptions { Meta file_meta = 1088; }
extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }
`,
	"confluent/type/decimal.proto": `syntax = "proto3";
package confluent.type;
message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }
`,
}

// compile compiles a file in Protobuf's language, and its imports. read returns the content of a
// file.
func compile(name string, read func(name string) ([]byte, error)) (*ProtoSchema, error) {
	c := protocompile.Compiler{MaxParallelism: 1, Resolver: protocompile.WithStandardImports(&protocompile.SourceResolver{
		Accessor: func(name string) (io.ReadCloser, error) {
			data, err := read(name)
			if text, known := builtIn[name]; err != nil && known {
				data, err = []byte(text), nil
			}
			return io.NopCloser(bytes.NewReader(data)), err
		},
	})}
	compiled, err := c.Compile(context.Background(), name)
	if err != nil {
		if failed, ok := errors.AsType[*os.PathError](err); ok {
			return nil, fmt.Errorf("%s: %w", name, failed)
		}
		return nil, oneLine(err, "")
	}
	files := &protoregistry.Files{}
	if err := register(files, compiled[0]); err != nil {
		return nil, oneLine(err, "proto: ")
	}
	return newProtoSchema(files, compiled[0]), nil
}

// register adds a file and its imports.
func register(files *protoregistry.Files, file protoreflect.FileDescriptor) error {
	if _, err := files.FindFileByPath(file.Path()); err == nil {
		return nil
	}
	for i := range file.Imports().Len() {
		if err := register(files, file.Imports().Get(i).FileDescriptor); err != nil {
			return err
		}
	}
	return files.RegisterFile(file)
}
