package pipeline

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
)

const busConnection = "Endpoint=sb://contoso.servicebus.windows.net/;SharedAccessKeyName=writer;SharedAccessKey=a2V5"

// Messages have the properties that the file states.
func TestBusProperties(t *testing.T) {
	const keys = "    queue: orders\n    subject: body.type\n    correlation_id: body.trace\n    scheduled: body.due\n    reply_to: answers\n    ttl: 90m\n"
	for name, body := range map[string]string{"fields": "", "whole": "    body: {n: {from: body.n, type: integer}}\n"} {
		file := strings.Replace(busFile, "    queue: orders\n", keys, 1)
		if name == "whole" {
			file = strings.Replace(file, body, "", 1)
		}
		p, err := Parse("p.yaml", []byte(file), environment("SERVICEBUS_CONNECTION_STRING="+busConnection))
		if err != nil {
			t.Fatal(err)
		}
		due := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
		for text, want := range map[string]struct {
			subject, correlation string
			due                  time.Time
		}{
			`{"n":1,"who":"a","type":"red","trace":7,"due":"2026-05-04T03:02:01Z"}`: {"red", "7", due},
			`{"n":1,"who":"a","type":null}`:                                         {"", map[string]string{"fields": "", "whole": "own"}[name], time.Time{}},
		} {
			list, err := targetOf[*messageTarget](p).messages(t.Context(), &sluice.Event{Body: []byte(text), CorrelationID: "own"})
			if err != nil || len(list) != 1 {
				t.Fatalf("%s: %d messages, %v", text, len(list), err)
			}
			if m := list[0]; m.Key != "a" || m.Subject != want.subject || m.CorrelationID != want.correlation || !m.ScheduledFor.Equal(want.due) || m.ReplyTo != "answers" || m.TTL != 90*time.Minute ||
				string(m.Body) != map[string]string{"fields": `{"n":1}`, "whole": text}[name] {
				t.Errorf("%s of %s: %+v", name, text, m)
			}
		}
		if _, err := targetOf[*messageTarget](p).messages(t.Context(), &sluice.Event{Body: []byte(`{"n":1,"who":"a","due":"tomorrow"}`)}); err == nil || !strings.Contains(err.Error(), "field scheduled: body.due") {
			t.Errorf("%s: a time that is none: %v", name, err)
		}
	}
	for keys, want := range map[string]string{
		"    ttl: 1000000h\n":  `p.yaml:9:5: target.servicebus.ttl: "1000000h": write a duration from 1ms to 1193h2m47.295s`,
		"    subject: body\n":  "p.yaml:9:5: target.servicebus.subject: cannot be the whole body: write body.PATH",
		"    subjct: body.a\n": "p.yaml:9:5: target.servicebus.subjct: unknown key, did you mean subject?",
	} {
		file := strings.Replace(busFile, "    key: body.who\n", keys, 1)
		if _, err := Parse("p.yaml", []byte(file), environment("SERVICEBUS_CONNECTION_STRING="+busConnection)); err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}
