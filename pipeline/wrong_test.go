package pipeline

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/sluicetest"
)

// TestWrongPipeline: a mapping, a format or routes that are wrong for every event hold the
// partition and make no dead letter, in each delivery.
func TestWrongPipeline(t *testing.T) {
	target := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer target.Close()
	const leases = "leases: {sql: \"${DATABASE_URL}\"}"
	columns := sound[strings.Index(sound, "  insert:"):]
	post := func(more string) []string {
		return []string{"database: ${DATABASE_URL}", leases, columns, "  http:\n    url: " + target.URL + "\n" + more}
	}
	for name, edits := range map[string][]string{
		"mapping":               {"body.delay, type: integer}", "body.dealy, type: integer, required: true}"},
		"format":                {"  start: earliest\n", "  start: earliest\n  format: {compression: gzip}\n"},
		"routes":                {"target:\n", "routes:\n- only: {body.kind: flihgt}\n  target:\n", "  insert:\n    table: flights\n    create: true\n    columns:\n      sequence_number: sequence\n      delay: {from: body.delay, type: integer}\n", "    insert: {table: flights, create: true, columns: {delay: {from: body.delay, type: integer}}}\n"},
		"format, at least once": append(post(""), "  start: earliest\n", "  start: earliest\n  format: {compression: gzip}\n"),
		"format, in batches":    append(post("order: partition\n"), "  start: earliest\n", "  start: earliest\n  format: {compression: gzip}\n"),
	} {
		t.Run(name, func(t *testing.T) {
			address, _ := sqliteFile(t)
			p, err := Parse("p.yaml", []byte(edit(t, edits...)), environment("DATABASE_URL="+address))
			if err != nil {
				t.Fatal(err)
			}
			parts, err := p.Open(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer parts.Close(context.Background())
			hub := sluicetest.NewHub(p.Group, 1)
			for i := range 500 {
				hub.Append("0", &sluice.Event{Body: fmt.Appendf(nil, `{"kind":"flight","delay":%d}`, i)})
			}
			held := make(chan struct{}, 1)
			c, err := parts.Consumer(t.Context(), &Options{Source: hub, Observer: driver.ObserverFunc(func(o driver.Observation) {
				if o.Kind == driver.KindFailed && strings.Contains(fmt.Sprint(o.Err), "the mapping has mapped none of ") {
					select {
					case held <- struct{}{}:
					default:
					}
				}
			})})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- c.Run(ctx) }()
			<-held
			<-held
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			if list := deadLetters(t, p, parts); len(list) != 0 {
				t.Errorf("%d dead letters, the first: %s", len(list), list[0])
			}
		})
	}
}
