package kafka

import (
	"reflect"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/driver"
)

// As Event Hubs' Kafka endpoint returns the properties of an AMQP message, and headers of Kafka.
const (
	amqpText = "\xa1\x06device"
	amqpLong = "US" // the long 83
	amqpInt  = "TA" // the int 65
	amqpTrue = "A"
	amqpURI  = "\x00\xa3\x11com.microsoft:uri\xa1\x03a:b"
)

func headersOfPairs(pairs ...string) (headers []driver.Header) {
	for i := 0; i < len(pairs); i += 2 {
		headers = append(headers, driver.Header{Name: pairs[i], Value: []byte(pairs[i+1])})
	}
	return headers
}

func TestHeaderValues(t *testing.T) {
	for _, c := range []struct {
		name    string
		values  HeaderValues
		headers []driver.Header
		want    map[string]any
	}{
		{"bytes", BytesHeaders, headersOfPairs("a", amqpLong, "b", amqpText), map[string]any{"a": "US", "b": []byte(amqpText)}},
		{"the zero value", "", headersOfPairs("a", amqpLong), map[string]any{"a": "US"}},
		{"amqp", AMQPHeaders, headersOfPairs("a", amqpLong, "b", amqpText, "c", "flights", "d", amqpTrue, "e", "\xa1\x05four", "f", amqpURI),
			map[string]any{"a": int64(83), "b": "device", "c": "flights", "d": true, "e": []byte("\xa1\x05four"), "f": driver.URI("a:b")}},
		{"text of Kafka", detectedHeaders, headersOfPairs("country", "US", "grade", "A", "word", "rival"), map[string]any{"country": "US", "grade": "A", "word": "rival"}},
		{"properties of AMQP", detectedHeaders, headersOfPairs("a", amqpLong, "b", amqpText, "n", amqpInt), map[string]any{"a": int64(83), "b": "device", "n": int32(65)}},
		{"beside text of Kafka", detectedHeaders, headersOfPairs("a", amqpLong, "b", amqpText, "c", "flights"), map[string]any{"a": "US", "b": "device", "c": "flights"}},
		{"beside AMQP's own", detectedHeaders, headersOfPairs("message-id", "US", "b", amqpText, "n", amqpInt, "content-type", "application/json"),
			map[string]any{"message-id": "US", "b": "device", "n": int32(65), "content-type": "application/json"}},
		{"null", detectedHeaders, append(headersOfPairs("b", amqpText), driver.Header{Name: "n"}), map[string]any{"b": "device", "n": nil}},
	} {
		if got := (&converter{values: c.values}).properties(c.headers); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s:\ngot  %#v\nwant %#v", c.name, got, c.want)
		}
	}
}

func TestHeaderValuesByBroker(t *testing.T) {
	for _, c := range []struct {
		broker     string
		configured HeaderValues
		want       HeaderValues
	}{
		{"contoso.servicebus.windows.net:9093", "", detectedHeaders},
		{"Contoso.Servicebus.Windows.Net:9093", "", detectedHeaders},
		{"contoso.servicebus.chinacloudapi.cn:9093", "", detectedHeaders},
		{"contoso.servicebus.windows.net:9093", BytesHeaders, BytesHeaders},
		{"contoso.servicebus.windows.net:9093", AMQPHeaders, AMQPHeaders},
		{"servicebus.windows.net.example.com:9092", "", BytesHeaders},
		{"localhost:9092", "", BytesHeaders},
		{"localhost:9092", AMQPHeaders, AMQPHeaders},
	} {
		client, err := Open([]string{c.broker}, nil)
		if err != nil {
			t.Fatal(err)
		}
		s, err := client.Source("flights", "test", &SourceConfig{Headers: c.configured})
		if err != nil || s.cfg.Headers != c.want {
			t.Errorf("%s, %q: %q, %v, want %q", c.broker, c.configured, s.cfg.Headers, err, c.want)
		}
		if _, err := client.Source("flights", "test", &SourceConfig{Headers: "json"}); err == nil || !strings.Contains(err.Error(), `header values "json": write amqp or bytes`) {
			t.Errorf("got %v", err)
		}
		_ = client.Close(t.Context())
	}
}

// A reader decodes the headers. The event keeps them as they were sent, and its id is text.
func TestReaderDecodesHeaders(t *testing.T) {
	c, _ := newFake(t)
	headers := headersOfPairs("message-id", "\xa1\x02id", "deviceId", amqpText, "n", amqpInt)
	if err := c.append(t.Context(), "0", &driver.Event{Body: []byte("{}"), Headers: headers}); err != nil {
		t.Fatal(err)
	}
	r, err := c.source(t, &SourceConfig{Headers: AMQPHeaders}).Open(t.Context(), "0", driver.Origin, driver.NoEpoch)
	if err != nil {
		t.Fatal(err)
	}
	events, err := r.Read(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	e := events[0]
	want := map[string]any{"message-id": "id", "deviceId": "device", "n": int32(65)}
	if e.MessageID != "id" || !reflect.DeepEqual(e.Properties, want) || !reflect.DeepEqual(e.Headers, headers) {
		t.Errorf("%q, %#v, %q", e.MessageID, e.Properties, e.Headers)
	}
}
