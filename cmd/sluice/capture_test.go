package main_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/avro"
	"github.com/twmb/avro/ocf"
)

// captureFile writes flights as Event Hubs Capture does,
// https://learn.microsoft.com/azure/event-hubs/explore-captured-avro-files
func captureFile(t testing.TB, bodies ...string) string {
	t.Helper()
	const text = `{"type":"record","name":"EventData","namespace":"Microsoft.ServiceBus.Messaging","fields":[
		{"name":"SequenceNumber","type":"long"},{"name":"Offset","type":"string"},{"name":"EnqueuedTimeUtc","type":"string"},
		{"name":"SystemProperties","type":{"type":"map","values":["long","double","string","bytes"]}},
		{"name":"Properties","type":{"type":"map","values":["long","double","string","bytes","null"]}},
		{"name":"Body","type":["null","bytes"]}]}`
	schema, err := avro.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "0.avro")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	w, err := ocf.NewWriter(file, schema, ocf.WithCodec(ocf.DeflateCodec(6)))
	if err != nil {
		t.Fatal(err)
	}
	for i, body := range bodies {
		if err := w.Encode(map[string]any{
			"SequenceNumber": int64(100 + i), "Offset": fmt.Sprint(1000 * i), "EnqueuedTimeUtc": "6/13/2026 5:54:12 PM",
			"SystemProperties": map[string]any{"x-opt-partition-key": "LAX"}, "Properties": map[string]any{"n": int64(i)}, "Body": []byte(body),
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// What Capture has stored is tried, guessed from, and sent again with its keys and properties.
func TestCapturedEvents(t *testing.T) {
	t.Parallel()
	_, connection := serve(t, 1)
	dir := t.TempDir()
	env := environment(connection, "sqlite:"+filepath.Join(dir, "f.db"))
	bodies := []string{sane, "no JSON \x00\xff", sane}
	file := captureFile(t, bodies...)
	code, out, errs := invoke(t, dir, env, "try", example(t), "--sample", file, "--without-database", "--json")
	list := triedLines(t, out)
	if code != 1 || len(list) != 3 || list[0].Sequence != 100 || list[0].Outcome != "rows" || list[0].Rows[0]["sequence_number"] != 100.0 || list[1].Outcome != "dead_letter" {
		t.Errorf("try: exit code %d: %+v\n%s", code, list, errs)
	}
	must(t, dir, env, "init", "guessed.yaml", "--sample", captureFile(t, sane, sane), "--database", "sqlite")
	guessed, err := os.ReadFile(filepath.Join(dir, "guessed.yaml"))
	if err != nil || !strings.Contains(string(guessed), "from: body.delay") {
		t.Errorf("init: %v\n%s", err, guessed)
	}
	must(t, dir, env, "send", "--hub", "flights", file)
	if sent := lookAt(t, connection).bodies(); !slices.Equal(sent, bodies) {
		t.Errorf("sent %q", sent)
	}
	seen := must(t, dir, env, "peek", "--hub", "flights", "--json")
	if strings.Count(seen, `"key":"LAX"`) != 3 || strings.Count(seen, `"properties":{"n":2}`) != 1 {
		t.Errorf("peek: %s", seen)
	}
}
