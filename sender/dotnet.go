package sender

import (
	"maps"
	"reflect"

	sdk "github.com/Azure/go-amqp"

	"github.com/sluice-go/sluice/driver"
)

// wireProperties returns properties as the client libraries encode them: values of .NET's types
// with their descriptors. It does not change the map.
func wireProperties(properties map[string]any) map[string]any {
	var out map[string]any
	for name, value := range properties {
		if v, ok := wireValue(value); ok {
			if out == nil {
				out = maps.Clone(properties)
			}
			out[name] = v
		}
	}
	if out == nil {
		return properties
	}
	return out
}

// wireValue returns a value of .NET's types as the libraries encode it, with its descriptor.
func wireValue(value any) (any, bool) {
	switch v := value.(type) {
	case driver.DateTimeOffset:
		return described(driver.DescriptorDateTimeOffset, int64(v)), true
	case driver.TimeSpan:
		return described(driver.DescriptorTimeSpan, int64(v)), true
	case driver.URI:
		return described(driver.DescriptorURI, string(v)), true
	}
	return nil, false
}

// described returns a value with a descriptor. go-amqp encodes such values, but exports no type for
// them: the type is that of a value that it has decoded, whose descriptor is a string there.
func described(descriptor string, value any) any {
	if describedType == nil {
		return value
	}
	v := reflect.New(describedType).Elem()
	v.FieldByName("Descriptor").Set(reflect.ValueOf(sdk.Symbol(descriptor)))
	v.FieldByName("Value").Set(reflect.ValueOf(value))
	return v.Interface()
}

// describedType is go-amqp's type of described values; nil if it has another form than it had when
// this was written, which a test would show.
var describedType = func() reflect.Type {
	const body = "\x00\x53\x77" + "\x00\xa3\x01x\x40" // null, described as x
	var m sdk.Message
	if err := m.UnmarshalBinary([]byte(body)); err != nil {
		return nil
	}
	anything := reflect.TypeFor[any]()
	t := reflect.TypeOf(m.Value)
	if t == nil || t.Kind() != reflect.Struct {
		return nil
	}
	for _, name := range []string{"Descriptor", "Value"} {
		if f, ok := t.FieldByName(name); !ok || f.Type != anything {
			return nil
		}
	}
	return t
}()
