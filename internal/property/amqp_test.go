package property

import (
	"bytes"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	sdk "github.com/Azure/go-amqp"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/amqp"
)

// randomValue returns a value that senders can set as a property, and what it is after decoding.
func randomValue(r *rand.Rand) (in, want any) {
	n := r.Uint64() >> r.IntN(64)
	text := strings.Repeat("ab€", r.IntN(100))
	switch r.IntN(22) {
	case 0:
		return nil, nil
	case 1:
		return n%2 == 0, n%2 == 0
	case 2:
		return uint8(n), uint8(n)
	case 3:
		return uint16(n), uint16(n)
	case 4:
		return uint32(n), uint32(n)
	case 5:
		return n, n
	case 6:
		return int8(n), int8(n)
	case 7:
		return int16(n), int16(n)
	case 8:
		return int32(n), int32(n)
	case 9, 10:
		return int64(n), int64(n)
	case 11:
		return float32(n), float32(n)
	case 12:
		return math.Pi * float64(n), math.Pi * float64(n)
	case 13:
		return []byte(text), []byte(text)
	case 14:
		return amqp.Symbol("abc"), "abc"
	case 15:
		at := time.UnixMilli(int64(n >> 20)).UTC()
		return at, at
	case 16:
		return amqp.UUID{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, "00010203-0405-0607-0809-0a0b0c0d0e0f"
	case 17:
		return amqp.Char('€'), "€"
	case 18:
		ticks := int64(n % 3e18)
		return amqp.Described{Descriptor: amqp.Symbol(driver.DescriptorDateTimeOffset), Value: ticks}, driver.DateTimeOffset(ticks)
	case 19:
		return amqp.Described{Descriptor: amqp.Symbol(driver.DescriptorTimeSpan), Value: int64(n)}, driver.TimeSpan(n)
	case 20:
		return amqp.Described{Descriptor: amqp.Symbol(driver.DescriptorURI), Value: text}, driver.URI(text)
	}
	return text, text
}

// A value is decoded to what was encoded. With a byte more or less it is not decoded, unless that
// is another value.
func TestDecodeAMQPInvertsEncoding(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		in, want := randomValue(r)
		data := amqp.AppendValue(nil, in)
		got, ok := DecodeAMQP(data)
		if !ok || !reflect.DeepEqual(got, want) {
			t.Fatalf("%#v, encoded %x: %#v, %v, want %#v", in, data, got, ok, want)
		}
		if _, err := Encode(map[string]any{"p": got}); err != nil {
			t.Fatalf("%#v cannot be stored: %v", got, err)
		}
		for _, other := range [][]byte{append(bytes.Clone(data), byte(r.Uint32())), data[:len(data)-1]} {
			if v, ok := DecodeAMQP(other); ok && !encodes(other, v) {
				t.Fatalf("%x is decoded to %#v", other, v)
			}
		}
	}
}

// encodes reports whether data is one AMQP value for a decoder that checks structure only.
func encodes(data []byte, _ any) bool {
	r := amqp.NewReader(data)
	r.Skip()
	return r.Err() == nil && !r.More()
}

// Bytes that are no AMQP value of a property.
func TestDecodeAMQPRefuses(t *testing.T) {
	for _, data := range []string{
		"", "flights", "12", "2026-01-02", "application/json", "\x00", "\x00\x00", "\x00\xa3\x01x\x40", "V1", "V\x02", "F", "\x45",
		"\xa1\x03ab", "\xa1\x01ab", "\xa1", "\xb1\x00\x00", "\xb1\x00\x00\x00\x02a", "\xb1\xff\xff\xff\xffa",
		"\xc0\x04\x02\x54\x01\x41", "\xc1\x05\x02\xa1\x01a\x41", "\xe0\x04\x02\x54\x01\x02", "\x84\x00\x00", "Größe", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
	} {
		if v, ok := DecodeAMQP([]byte(data)); ok {
			t.Errorf("%q is decoded to %#v", data, v)
		}
	}
}

func FuzzDecodeAMQP(f *testing.F) {
	for _, s := range []string{"US", "\xa1\x02hi", "\x00\xa3\x11com.microsoft:uri\xa1\x03a:b", "\x83\x00\x00\x01\x31\x17\xfc\x43\xc8", "\x74\x31\x80\x04\xe2"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		v, ok := DecodeAMQP(data)
		if !ok {
			return
		}
		if !encodes(data, v) {
			t.Fatalf("%x is decoded to %#v", data, v)
		}
		if _, err := Encode(map[string]any{"p": v}); err != nil {
			t.Fatal(err)
		}
	})
}

// What Azure's own client library encodes is decoded to the same.
func TestDecodeAMQPOfOfficialEncoder(t *testing.T) {
	at := time.UnixMilli(1_704_157_831_935).UTC()
	for _, c := range []struct{ in, want any }{
		{"thermostat-17", "thermostat-17"}, {strings.Repeat("x", 300), strings.Repeat("x", 300)}, {"", ""}, {true, true}, {false, false},
		{int32(65), int32(65)}, {int64(83), int64(83)}, {int64(-1 << 40), int64(-1 << 40)}, {uint64(0), uint64(0)}, {uint32(1 << 30), uint32(1 << 30)},
		{float32(1.5), float32(1.5)}, {math.Pi, math.Pi}, {at, at}, {[]byte{0, 255}, []byte{0, 255}}, {sdk.Symbol("s"), "s"},
		{sdk.UUID{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, "00010203-0405-0607-0809-0a0b0c0d0e0f"},
	} {
		data, err := (&sdk.Message{Value: c.in}).MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		value, ok := bytes.CutPrefix(data, []byte("\x00\x53\x77"))
		if got, decoded := DecodeAMQP(value); !ok || !decoded || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%#v, encoded %x: %#v, %v", c.in, data, got, decoded)
		}
	}
}
