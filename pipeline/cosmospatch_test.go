package pipeline

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
)

const soundPatch = "operation: patch\n    patch: {/status: body.status, /o/n: {from: body.n, type: integer, required: false}, /at: {from: enqueued}}"

func TestCosmosPatch(t *testing.T) {
	enqueued := time.Date(2026, 7, 1, 0, 0, 0, 0, time.UTC)
	for body, want := range map[string]string{
		`{"id":"a","key":"k","status":"paid \"","n":5}`: `4 a [k] [{"op":"set","path":"/status","value":"paid \""},{"op":"set","path":"/o/n","value":5},{"op":"set","path":"/at","value":"2026-07-01T00:00:00Z"}]`,
		`{"id":"a","key":"k","status":"paid","n":null}`: `4 a [k] [{"op":"set","path":"/status","value":"paid"},{"op":"set","path":"/o/n","value":null},{"op":"set","path":"/at","value":"2026-07-01T00:00:00Z"}]`,
		`{"id":"a","key":"k","status":"paid"}`:          `4 a [k] [{"op":"set","path":"/status","value":"paid"},{"op":"set","path":"/at","value":"2026-07-01T00:00:00Z"}]`,
		`{"id":"a","key":"k"}`:                          `property /status: body.status: is missing`,
		`{"id":"a","key":"k","status":"x","n":"y"}`:     `property /o/n: body.n: "y" where a whole number should be`,
	} {
		p, err := parseCosmos("operation: create", soundPatch)
		if err != nil {
			t.Fatal(err)
		}
		docs, err := targetOf[*cosmosTarget](p).documents(t.Context(), &sluice.Event{Body: []byte(body), Enqueued: enqueued})
		got := fmt.Sprint(err)
		if err == nil {
			got = fmt.Sprintf("%d %s %v %s", docs[0].Operation, docs[0].ID, docs[0].PartitionKey, docs[0].Body)
		}
		if got != want {
			t.Errorf("%s\ngot  %s\nwant %s", body, got, want)
		}
		tried, err := p.Try(t.Context(), &sluice.Event{Body: []byte(body), Enqueued: enqueued})
		if err != nil || (tried.Err == nil) != strings.HasPrefix(want, "4") || tried.Err == nil && (len(tried.Rows) != 1 || tried.Rows[0].Values[0].Name != "/status") {
			t.Errorf("%s: tried %+v, %v", body, tried, err)
		}
	}
}

func TestCosmosPatchMistakes(t *testing.T) {
	ten := ""
	for i := range 10 {
		ten += fmt.Sprintf("/p%d: body.x, ", i)
	}
	for keys, want := range map[string]string{
		"operation: patch": "operation: patch goes with patch",
		"operation: replace\n    patch: {/a: body.a}":            "target.cosmos.patch: goes with operation: patch",
		"operation: patch\n    patch: {}":                        "has 0 properties: write 1 to 9",
		"operation: patch\n    patch: {" + ten + "}":             "has 10 properties: write 1 to 9",
		"operation: patch\n    patch: {a: body.a}":               `"a" is no path`,
		"operation: patch\n    patch: {/id: body.a}":             "id cannot be patched",
		"operation: patch\n    patch: {/_ts: body.a}":            "_ts cannot be patched",
		"operation: patch\n    ttl: 1h\n    patch: {/a: body.a}": "set /ttl in patch",
	} {
		if _, err := parseCosmos("operation: create", keys); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", keys, err, want)
		}
	}
	if _, err := parseCosmos("operation: create\n    conditional: true", "operation: patch\n    patch: {"+ten+"}"); err != nil {
		t.Error(err)
	}
}
