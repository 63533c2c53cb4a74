package kafka

import (
	"fmt"
	"strings"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/property"
)

// HeaderValues says what the values of headers are. Event Hubs stores the properties of AMQP's
// senders, such as IoT Hub and Azure's SDKs, as they came, and returns each through its Kafka
// endpoint as a header whose value is one encoded value of AMQP; headers of Kafka's producers, and
// AMQP's own properties such as message-id, are bytes as elsewhere.
type HeaderValues string

const (
	// BytesHeaders are bytes, text if they are UTF-8.
	BytesHeaders HeaderValues = "bytes"
	// AMQPHeaders are decoded if they are exactly one value of AMQP, and bytes otherwise.
	AMQPHeaders HeaderValues = "amqp"
	// detectedHeaders are AMQPHeaders, except for values that are text too, such as US (the long
	// 83): these need another header of the record that only AMQP encodes so.
	detectedHeaders HeaderValues = "detected"
)

// azureDomains are the domains of Event Hubs' namespaces in all clouds.
var azureDomains = []string{".servicebus.windows.net", ".servicebus.usgovcloudapi.net", ".servicebus.chinacloudapi.cn"}

// headerValues returns what the values of headers are: what was configured, or what the brokers'
// names say.
func (c *Client) headerValues(configured HeaderValues) (HeaderValues, error) {
	switch configured {
	case BytesHeaders, AMQPHeaders:
		return configured, nil
	case "":
	default:
		return "", fmt.Errorf("header values %q: write %s or %s", configured, AMQPHeaders, BytesHeaders)
	}
	for _, broker := range c.brokers {
		host, _, _ := strings.Cut(strings.ToLower(broker), ":")
		for _, domain := range azureDomains {
			if strings.HasSuffix(host, domain) {
				return detectedHeaders, nil
			}
		}
	}
	return BytesHeaders, nil
}

// amqpProperties are the headers that Event Hubs makes of AMQP's own properties, as text.
var amqpProperties = map[string]bool{
	HeaderMessageID: true, HeaderCorrelationID: true, HeaderContentType: true, "content-encoding": true, "user-id": true, "to": true, "subject": true,
	"reply-to": true, "absolute-expiry-time": true, "creation-time": true, "group-id": true, "group-sequence": true, "reply-to-group-id": true,
}

// properties returns the properties that the headers are, whose names may repeat.
func (c *converter) properties(headers []driver.Header) map[string]any {
	decodeText := c.values == AMQPHeaders || c.values == detectedHeaders && ofAMQP(headers)
	out := make(map[string]any, len(headers))
	for _, h := range headers {
		value := plainProperty(h.Value)
		if c.values == AMQPHeaders || c.values == detectedHeaders {
			decoded, ok := property.DecodeAMQP(h.Value)
			if ok && (!printable(h.Value) || decodeText && !amqpProperties[h.Name]) {
				value = decoded
			}
		}
		out[validText(h.Name)] = value
	}
	return out
}

// ofAMQP reports whether the headers of a record are the properties of an AMQP message: all can be,
// and one cannot be text.
func ofAMQP(headers []driver.Header) bool {
	proved := false
	for _, h := range headers {
		if h.Value == nil || amqpProperties[h.Name] {
			continue
		}
		if _, ok := property.DecodeAMQP(h.Value); !ok {
			return false
		}
		proved = proved || !printable(h.Value)
	}
	return proved
}

// printable reports whether bytes are text of ASCII without control characters.
func printable(b []byte) bool {
	for _, c := range b {
		if c < ' ' || c > '~' {
			return false
		}
	}
	return true
}
