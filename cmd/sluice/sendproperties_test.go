package main_test

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// TestSendProperties sets what messages of Service Bus have beside key and body.
func TestSendProperties(t *testing.T) {
	t.Parallel()
	srv, connection := serveBus(t)
	later := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	file := writeLines(t, []string{
		`{"n":1,"type":"red","trace":7,"at":"2020-01-02T03:04:05Z"}`, `{"n":2,"type":null}`, `{"n":3,"type":"late","at":"` + later.Format(time.RFC3339) + `"}`,
	})
	send := []string{"send", "--to", connection, "--queue", "orders", "--reply-to", "answers", "--ttl", "90m"}
	must(t, "", nil, append(send, "--subject-field", "type", "--correlation-field", "trace", "--scheduled-field", "at", file)...)
	text := func(s *string) string {
		if s == nil {
			return ""
		}
		return *s
	}
	checkAll := func(m *azservicebus.ReceivedMessage, subject, correlation string) {
		t.Helper()
		if text(m.Subject) != subject || text(m.CorrelationID) != correlation || text(m.ReplyTo) != "answers" || m.TimeToLive == nil || *m.TimeToLive != 90*time.Minute || text(m.ContentType) != "application/json" {
			t.Errorf("message %s: subject %q, correlation id %q, reply to %q, TTL %v", m.Body, text(m.Subject), text(m.CorrelationID), text(m.ReplyTo), m.TimeToLive)
		}
	}
	if counts, err := srv.Counts("orders"); err != nil || counts.Active != 2 || counts.Scheduled != 1 {
		t.Errorf("%+v, %v", counts, err)
	}
	for _, m := range takeFrom(t, connection, "orders", 2) {
		if strings.Contains(string(m.Body), `"n":1`) {
			checkAll(m, "red", "7")
		} else {
			checkAll(m, "", "")
		}
	}
	must(t, "", nil, append(send, "--subject", "all", file)...)
	for _, m := range takeFrom(t, connection, "orders", 3) {
		checkAll(m, "all", "")
	}
	for args, want := range map[string]string{
		"--subject a --subject-field b":      "--subject and --subject-field exclude each other",
		"--ttl 1us":                          "--ttl 1µs: must be from 1ms to",
		"--ttl 9999h":                        "must be from 1ms to 1193h2m47.295s",
		"--generate 5 --scheduled-field key": "--scheduled-field: generated documents",
		"--generate 5 --property-field key":  "--property-field: generated documents",
		"--generate 5 --encoding latin-1":    "--encoding: generated documents",
		"--property a":                       "--property a: write it as NAME=TEXT",
		"--property =a":                      "--property: the name must not be empty",
		"--property a=1 --property a=2":      "--property a: --property sets it already",
		"--property a=1 --property-field a":  "--property-field a: --property sets it already",
		"--header a=1":                       "--header needs a topic of Kafka: use --property",
		"--content-type=":                    "--content-type: must not be empty",
		"--encoding ebcdic":                  "--encoding ebcdic: not known: write one of utf-8, utf-16,",
		"--delimiter ab":                     `--delimiter "ab": write one character`,
	} {
		code, out, errs := invoke(t, "", nil, append([]string{"send", "--to", connection, "--queue", "orders"}, strings.Fields(args)...)...)
		if code != 2 || out != "" || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, want) {
			t.Errorf("%s: exit code %d: %s%s", args, code, out, errs)
		}
	}
	bad := writeLines(t, []string{`{"n":1}`, `{"n":2,"at":"tomorrow","type":[1]}`, `{"n":3}`})
	for field, want := range map[string]string{"at": "line 2: field at: not a time: write it like 2026-", "type": "line 2: field type is an object or an array"} {
		flag := map[string]string{"at": "--scheduled-field", "type": "--subject-field"}[field]
		if code, out, errs := invoke(t, "", nil, append(send, flag, field, bad)...); code != 1 || !strings.HasPrefix(out, "2 records ") || !strings.Contains(errs, want) {
			t.Errorf("%s: exit code %d: %s%s", field, code, out, errs)
		}
	}
}

// TestSendApplicationProperties sets properties of messages, by a text and by fields of the record.
func TestSendApplicationProperties(t *testing.T) {
	t.Parallel()
	_, connection := serveBus(t)
	file := writeLines(t, []string{
		`{"n":9007199254740993,"x":1.5,"ok":true,"s":"é","none":null}`, `{"n":{}}`, `{"n":123456789012345678901234567890}`,
	})
	code, out, errs := invoke(t, "", nil, "send", "--to", connection, "--queue", "orders", "--content-type", "application/geo+json", "--property", "site=a=b",
		"--property-field", "n", "--property-field", "x", "--property-field", "ok", "--property-field", "s", "--property-field", "none", file)
	if code != 1 || !strings.HasPrefix(out, "1 record ") || !strings.Contains(errs, "line 2: field n is an object or an array") ||
		!strings.Contains(errs, "line 3: field n has the number 123456789012345678901234567890, which does not fit into 64 bits") {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
	m := takeFrom(t, connection, "orders", 1)[0]
	want := map[string]any{"site": "a=b", "n": int64(9007199254740993), "x": 1.5, "ok": true, "s": "é"}
	if !maps.Equal(m.ApplicationProperties, want) || m.ContentType == nil || *m.ContentType != "application/geo+json" {
		t.Errorf("properties %v, content type %v", m.ApplicationProperties, m.ContentType)
	}
}
