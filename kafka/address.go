package kafka

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
)

// Bounds of what a user gives as an address.
const (
	maxBrokers   = 100
	maxAddresses = 16 << 10 // bytes of all
)

// Address is where a topic is: kafka://HOST[:PORT][,HOST[:PORT]…][/TOPIC], or kafka+tls://… over TLS.
type Address struct {
	Brokers []string // HOST:PORT each
	TLS     bool
	Topic   string // empty if the address names none
}

// ParseURL parses an address. It holds no user and no password: a command line and a log show it.
func ParseURL(text string) (Address, error) {
	if len(text) > maxAddresses {
		return Address{}, fmt.Errorf("address of Kafka has %d bytes: give at most %d", len(text), maxAddresses)
	}
	scheme, rest, found := strings.Cut(text, "://")
	var a Address
	switch {
	case found && strings.EqualFold(scheme, "kafka"):
	case found && strings.EqualFold(scheme, "kafka+tls"):
		a.TLS = true
	default:
		return Address{}, errors.New("not a Kafka address: write it like kafka://HOST:9092, or kafka+tls://HOST:9093 with TLS")
	}
	if strings.ContainsAny(rest, "@?#") {
		return Address{}, errors.New("more than brokers and a topic in a Kafka address: set the user, the password and other settings elsewhere")
	}
	hosts, topic, _ := strings.Cut(rest, "/")
	topic = strings.TrimSuffix(topic, "/")
	if topic != "" {
		if err := checkTopic(topic); err != nil {
			return Address{}, err
		}
	}
	a.Topic = topic
	var err error
	a.Brokers, err = ParseBrokers(hosts)
	return a, err
}

// ParseBrokers parses a list of brokers, HOST or HOST:PORT each, separated by commas.
func ParseBrokers(text string) ([]string, error) {
	if len(text) > maxAddresses {
		return nil, fmt.Errorf("brokers: %d bytes: give at most %d", len(text), maxAddresses)
	}
	list := strings.FieldsFunc(text, func(r rune) bool { return r == ',' })
	for i := range list {
		list[i] = strings.TrimSpace(list[i])
	}
	return checkBrokers(list)
}

// checkBrokers checks addresses and adds the default port.
func checkBrokers(list []string) ([]string, error) {
	switch {
	case len(list) == 0:
		return nil, errors.New("no broker: give at least one, like 127.0.0.1:9092")
	case len(list) > maxBrokers:
		return nil, fmt.Errorf("%d brokers: give at most %d; a few suffice, they name the others", len(list), maxBrokers)
	}
	addresses := make([]string, 0, len(list))
	for i, broker := range list {
		address, err := checkBroker(broker)
		if err != nil {
			return nil, fmt.Errorf("broker %d: %w", i+1, err)
		}
		addresses = append(addresses, address)
	}
	return addresses, nil
}

// checkBroker returns an address with its port. Its errors do not quote it: a password may have
// been put in the wrong place.
func checkBroker(broker string) (string, error) {
	u := url.URL{Host: broker}
	name, port := u.Hostname(), u.Port()
	switch {
	case name == "" || len(name) > 253 || strings.ContainsFunc(name, func(r rune) bool {
		return r != '.' && r != '-' && r != '_' && r != ':' && r != '%' && !('0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z')
	}):
		return "", errors.New("not a host: write it like HOST:9092")
	case strings.Contains(name, ":") && net.ParseIP(name) == nil || strings.Contains(name, "%"):
		return "", errors.New("not HOST or HOST:PORT, or an IPv6 address that is not in brackets")
	case strings.HasSuffix(broker, ":"):
		return "", errors.New("no port after the colon")
	case port == "":
		port = "9092"
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return "", errors.New("the port is not between 1 and 65535")
	}
	return net.JoinHostPort(name, strconv.FormatUint(n, 10)), nil
}

// checkTopic checks a topic's name by Kafka's rules.
func checkTopic(topic string) error {
	switch {
	case topic == "":
		return errors.New("no topic: give its name")
	case len(topic) > 249 || topic == "." || topic == ".." || strings.ContainsFunc(topic, func(r rune) bool {
		return r != '.' && r != '-' && r != '_' && !('0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z')
	}):
		return errors.New("topic: not a name: Kafka's names have letters, digits, \".\", \"_\" and \"-\", 249 at most")
	}
	return nil
}
