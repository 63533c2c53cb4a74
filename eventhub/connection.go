package eventhub

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"unicode"
)

// maxConnectionString bounds the length of a connection string in bytes. Real ones
// have about 300, with a signature instead of a key perhaps 1,000.
const maxConnectionString = 8 << 10

// endpoint is the address of a broker and the key for it. Only the host and the
// entity may appear in a message, because the rest is secret.
type endpoint struct {
	host      string // with the port, if one was given
	plain     bool   // without TLS, as development emulators are
	entity    string // the hub, if the connection string named one
	keyName   string
	key       string
	signature string
}

// parseConnectionString parses a connection string strictly: a misspelled or
// repeated part is an error. Errors quote only the number of a part, because a
// damaged string can have its key anywhere. TransportType and OperationTimeout, which other client
// libraries read, are accepted without an effect: Config has such settings.
func parseConnectionString(text string) (endpoint, error) {
	text = strings.TrimSpace(text)
	switch {
	case text == "":
		return endpoint{}, errors.New("empty: copy it from the namespace's shared access policies")
	case len(text) > maxConnectionString:
		return endpoint{}, fmt.Errorf("%d bytes long: no connection string has more than %d", len(text), maxConnectionString)
	case strings.ContainsFunc(text, func(r rune) bool { return unicode.IsControl(r) || r == unicode.ReplacementChar }):
		return endpoint{}, errors.New("contains a line break or unprintable character: copy it again, as one line")
	}
	if err := checkOrigin(text); err != nil {
		return endpoint{}, err
	}
	var ep endpoint
	var address, emulator, ignored, unused string
	fields := []struct {
		name   string
		target *string
	}{
		{"Endpoint", &address}, {"SharedAccessKeyName", &ep.keyName}, {"SharedAccessKey", &ep.key},
		{"SharedAccessSignature", &ep.signature}, {"EntityPath", &ep.entity}, {"UseDevelopmentEmulator", &emulator},
		{"TransportType", &ignored}, {"OperationTimeout", &unused},
	}
parts:
	for i, part := range strings.Split(text, ";") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		name, value, ok := strings.Cut(part, "=")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value) // no name, key or address has spaces around it
		if !ok {
			return endpoint{}, fmt.Errorf("part %d has no \"=\": the parts are NAME=VALUE, separated by \";\"", i+1)
		}
		for _, f := range fields {
			if !strings.EqualFold(f.name, name) {
				continue
			}
			switch {
			case value == "":
				return endpoint{}, fmt.Errorf("%s is empty: copy the whole string", f.name)
			case *f.target != "":
				return endpoint{}, fmt.Errorf("%s is there twice: remove one", f.name)
			}
			*f.target = value
			continue parts
		}
		return endpoint{}, fmt.Errorf("part %d is none of Endpoint, SharedAccessKeyName, SharedAccessKey, SharedAccessSignature, EntityPath and UseDevelopmentEmulator: correct or remove it", i+1)
	}
	return ep, ep.check(address, emulator)
}

// CheckConnectionString returns what a text is, and what to give instead, if it is the connection
// string of another service than Event Hubs and Service Bus, or in quotation marks. It returns nil
// for any other text, which need not be a connection string.
func CheckConnectionString(text string) error { return checkOrigin(strings.TrimSpace(text)) }

// checkOrigin is [CheckConnectionString] for a text without blanks around it.
func checkOrigin(text string) error {
	for _, quote := range []string{`"`, "'", "`", "“", "„", "‘"} {
		if strings.HasPrefix(text, quote) {
			return errors.New("is in quotation marks: write it without them")
		}
	}
	names := map[string]bool{}
	for part := range strings.SplitSeq(text, ";") {
		if name, _, ok := strings.Cut(part, "="); ok {
			names[strings.ToLower(strings.TrimSpace(name))] = true
		}
	}
	switch {
	case names["endpoint"]:
		return nil
	case names["hostname"] && names["deviceid"]:
		return errors.New("is that of a device of IoT Hub (HostName=…;DeviceId=…), which cannot read events: give the Event Hub-compatible endpoint, in the portal under the IoT hub's Built-in endpoints")
	case names["hostname"]:
		return errors.New("is that of an IoT hub (HostName=…): give the Event Hub-compatible endpoint (Endpoint=sb://…;EntityPath=…), in the portal under the IoT hub's Built-in endpoints")
	case names["accountendpoint"]:
		return errors.New("is that of a Cosmos DB account (AccountEndpoint=…): give the one of an Event Hubs or Service Bus namespace, Endpoint=sb://…")
	case names["accountname"] || names["defaultendpointsprotocol"]:
		return errors.New("is that of a storage account (AccountName=…): give the one of an Event Hubs or Service Bus namespace, Endpoint=sb://…")
	}
	return nil
}

// check validates the parts together.
func (ep *endpoint) check(address, emulator string) error {
	switch {
	case address == "":
		return errors.New("no Endpoint: a connection string begins with Endpoint=sb://")
	case ep.signature != "" && (ep.key != "" || ep.keyName != ""):
		return errors.New("both a SharedAccessSignature and a SharedAccessKey: remove one")
	case ep.signature == "" && ep.key == "" && ep.keyName == "":
		return errors.New("no SharedAccessKeyName and no SharedAccessKey: copy the whole string")
	case ep.signature == "" && ep.keyName == "":
		return errors.New("no SharedAccessKeyName: copy the whole string")
	case ep.signature == "" && ep.key == "":
		return errors.New("no SharedAccessKey: copy the whole string")
	case ep.entity != "" && !validName(ep.entity):
		return errors.New("no hub's name in EntityPath: give the event hub's name only")
	}
	if emulator != "" {
		plain, err := strconv.ParseBool(emulator)
		if err != nil {
			return errors.New("UseDevelopmentEmulator is neither true nor false")
		}
		ep.plain = plain
	}
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Scheme != "sb" || u.Opaque != "":
		return errors.New("no address in Endpoint: it is like sb://NAMESPACE.servicebus.windows.net/")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.Trim(u.Path, "/") != "":
		return errors.New("more than a host and a port in Endpoint: name the hub in EntityPath")
	}
	ep.host = u.Host
	if err := ep.checkHost(); err != nil {
		return fmt.Errorf("in Endpoint: %w", err)
	}
	return nil
}

// checkHost validates host, which may appear in messages from then on.
func (ep *endpoint) checkHost() error {
	u := url.URL{Host: ep.host}
	name, port := u.Hostname(), u.Port()
	switch {
	case name == "" || len(name) > 253 || strings.ContainsFunc(name, func(r rune) bool {
		return r != '.' && r != '-' && r != '_' && r != ':' && !('0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z')
	}):
		return errors.New("not a host: write it like NAMESPACE.servicebus.windows.net")
	case strings.Contains(name, ":") && net.ParseIP(name) == nil:
		return errors.New("not a host: write an IPv6 address in brackets")
	case strings.HasSuffix(ep.host, ":"):
		return errors.New("no port after the colon")
	case port != "":
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return errors.New("the port is not between 1 and 65535")
		}
	}
	return nil
}

// hostname returns the host without the port.
func (ep *endpoint) hostname() string {
	u := url.URL{Host: ep.host}
	return u.Hostname()
}

// address returns the address to connect to. The default port is AMQP's as
// registered with IANA: 5671 over TLS, 5672 without.
func (ep *endpoint) address() string {
	u := url.URL{Host: ep.host}
	port := u.Port()
	switch {
	case port == "" && ep.plain:
		port = "5672"
	case port == "":
		port = "5671"
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// connectionString returns the string for the SDK. It omits the hub, which the SDK
// accepts in one place only.
func (ep *endpoint) connectionString() string {
	text := "Endpoint=sb://" + ep.host
	if ep.signature != "" {
		text += ";SharedAccessSignature=" + ep.signature
	} else {
		text += ";SharedAccessKeyName=" + ep.keyName + ";SharedAccessKey=" + ep.key
	}
	if ep.plain {
		text += ";UseDevelopmentEmulator=true"
	}
	return text
}
