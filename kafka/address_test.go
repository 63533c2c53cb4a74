package kafka

import (
	"reflect"
	"strings"
	"testing"
)

func TestParseURL(t *testing.T) {
	for text, want := range map[string]Address{
		"kafka://127.0.0.1:9092":                {Brokers: []string{"127.0.0.1:9092"}},
		"kafka://one,two:19092/flights":         {Brokers: []string{"one:9092", "two:19092"}, Topic: "flights"},
		"KAFKA+TLS://ns.example.com:9093/a.b-c": {Brokers: []string{"ns.example.com:9093"}, TLS: true, Topic: "a.b-c"},
		"kafka://[::1]:9092/t/":                 {Brokers: []string{"[::1]:9092"}, Topic: "t"},
		"kafka://[::1]":                         {Brokers: []string{"[::1]:9092"}},
	} {
		if got, err := ParseURL(text); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v; want %+v", text, got, err, want)
		}
	}
	const secret = "s3cret"
	for text, want := range map[string]string{
		"127.0.0.1:9092":                         "not a Kafka address: write it like kafka://HOST:9092, or kafka+tls://HOST:9093 with TLS",
		"amqps://host":                           "not a Kafka address: write it like kafka://HOST:9092, or kafka+tls://HOST:9093 with TLS",
		"kafka://":                               "no broker: give at least one, like 127.0.0.1:9092",
		"kafka:///topic":                         "no broker: give at least one, like 127.0.0.1:9092",
		"kafka://user:" + secret + "@host":       "more than brokers and a topic in a Kafka address: set the user, the password and other settings elsewhere",
		"kafka://host?password=" + secret:        "more than brokers and a topic in a Kafka address: set the user, the password and other settings elsewhere",
		"kafka://host,user:" + secret + "/t":     "broker 2: not HOST or HOST:PORT, or an IPv6 address that is not in brackets",
		"kafka://host:0":                         "broker 1: the port is not between 1 and 65535",
		"kafka://host:":                          "broker 1: no port after the colon",
		"kafka://ho st":                          "broker 1: not a host: write it like HOST:9092",
		"kafka://::1":                            "broker 1: not HOST or HOST:PORT, or an IPv6 address that is not in brackets",
		"kafka://host/a/b":                       "topic: not a name: Kafka's names have letters, digits, \".\", \"_\" and \"-\", 249 at most",
		"kafka://host/..":                        "topic: not a name: Kafka's names have letters, digits, \".\", \"_\" and \"-\", 249 at most",
		"kafka://" + strings.Repeat("h,", 200):   "200 brokers: give at most 100; a few suffice, they name the others",
		"kafka://" + strings.Repeat("h", 20_000): "address of Kafka has 20008 bytes: give at most 16384",
	} {
		if got, err := ParseURL(text); err == nil || err.Error() != want || strings.Contains(err.Error(), secret) {
			t.Errorf("%.60s: %+v, %v; want %s", text, got, err, want)
		}
	}
}

func FuzzParseURL(f *testing.F) {
	for _, text := range []string{"kafka://127.0.0.1:9092/flights", "kafka+tls://a,b:1", "kafka://[::1%25eth0]:9/x", "kafka://a%00b"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a, err := ParseURL(text)
		if err != nil {
			if len(err.Error()) > 300 || strings.ContainsAny(err.Error(), "\n\r") {
				t.Errorf("an error that is long or has several lines: %q", err)
			}
			return
		}
		if len(a.Brokers) == 0 || len(a.Brokers) > maxBrokers {
			t.Errorf("%d brokers", len(a.Brokers))
		}
		client, err := Open(a.Brokers, nil)
		if err != nil {
			t.Fatalf("%q is an address, but not for Open: %v", text, err)
		}
		client.requests.Close()
		again, err := ParseBrokers(strings.Join(a.Brokers, ","))
		if err != nil || !reflect.DeepEqual(again, a.Brokers) {
			t.Errorf("%q: %q, parsed again %q, %v", text, a.Brokers, again, err)
		}
	})
}
