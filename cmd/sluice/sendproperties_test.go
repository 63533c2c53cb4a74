package main_test

import (
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
	} {
		code, out, errs := invoke(t, "", nil, append([]string{"send", "--to", connection, "--queue", "orders"}, strings.Fields(args)...)...)
		if code != 2 || out != "" || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, want) {
			t.Errorf("%s: exit code %d: %s%s", args, code, out, errs)
		}
	}
	bad := writeLines(t, []string{`{"n":1}`, `{"n":2,"at":"tomorrow","type":[1]}`})
	for field, want := range map[string]string{"at": "line 2: field at: not a time: write it like 2026-", "type": "line 2: field type is an object or an array"} {
		flag := map[string]string{"at": "--scheduled-field", "type": "--subject-field"}[field]
		if code, out, errs := invoke(t, "", nil, append(send, flag, field, bad)...); code != 1 || !strings.HasPrefix(out, "1 record ") || !strings.Contains(errs, want) {
			t.Errorf("%s: exit code %d: %s%s", field, code, out, errs)
		}
	}
}
