package sender

import (
	"bytes"
	"reflect"
	"testing"

	sdk "github.com/Azure/go-amqp"

	"github.com/sluice-go/sluice/driver"
)

// Values of .NET's types are sent as .NET's clients send them (Azure.Core.Amqp's
// AmqpAnnotatedMessageConverter): a descriptor, and ticks or the address.
func TestDotNetProperties(t *testing.T) {
	for _, c := range []struct {
		value any
		wire  string
	}{
		{driver.DateTimeOffset(0x08dc0b2f9dd89e40), "\x00\xa3\x1dcom.microsoft:datetime-offset\x81\x08\xdc\x0b\x2f\x9d\xd8\x9e\x40"},
		{driver.TimeSpan(10), "\x00\xa3\x16com.microsoft:timespan\x55\x0a"},
		{driver.URI("a:b"), "\x00\xa3\x11com.microsoft:uri\xa1\x03a:b"},
		{driver.URI(""), "\x00\xa3\x11com.microsoft:uri\xa1\x00"},
	} {
		properties := map[string]any{"p": c.value, "q": "text"}
		m := sdk.Message{ApplicationProperties: wireProperties(properties)}
		data, err := m.MarshalBinary()
		if err != nil || !bytes.Contains(data, []byte("\xa1\x01p"+c.wire)) {
			t.Errorf("%v: %q, %v, want %q", c.value, data, err, c.wire)
		}
		if !reflect.DeepEqual(properties, map[string]any{"p": c.value, "q": "text"}) {
			t.Errorf("the message's own properties became %v", properties)
		}
		alone := overhead(&Message{Properties: map[string]any{"p": c.value}})
		if alone < len(c.wire)-6 {
			t.Errorf("%v: counted as %d bytes, has %d", c.value, alone, len(c.wire)+1)
		}
	}
	plain := map[string]any{"q": "text"}
	if wire := wireProperties(plain); reflect.ValueOf(wire).Pointer() != reflect.ValueOf(plain).Pointer() {
		t.Error("other properties are copied")
	}
	if wireProperties(nil) != nil {
		t.Error("no properties became some")
	}
}
