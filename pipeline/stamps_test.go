package pipeline

import (
	"reflect"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/stamp"
)

// A stage believes the stamps of the stages that send to its hub, and of the one that
// source.from names.
func TestStampsFrom(t *testing.T) {
	const key, old = "0123456789abcdef0123456789abcdef", "the key that was before this one"
	own := "  clean:\n    stamp_key: ${STAMP_KEY}\n"
	toTable := []string{"    source: {eventhub: {hub: figures}}\n    target:\n      insert", "    source: {eventhub: {hub: clean, consumer_group: x}}\n    target:\n      insert"}
	for name, c := range map[string]struct {
		edits []string
		want  [][]stamp.Source
	}{
		"as it is":                        {nil, [][]stamp.Source{nil, {{Topic: "flights"}}, nil}},
		"a hub of two stages":             {toTable, [][]stamp.Source{nil, {{Topic: "flights"}}, {{Topic: "flights"}}}},
		"with a key":                      {[]string{"batch: 500", "stamp_key: ${STAMP_KEY}"}, [][]stamp.Source{nil, {{Topic: "flights", Key: []byte(key)}}, nil}},
		"with a key of the sending stage": {[]string{"  clean:\n", own}, [][]stamp.Source{nil, {{Topic: "flights", Key: []byte(key)}}, nil}},
		"with an old key":                 {[]string{"  clean:\n", own + "    old_stamp_key: ${OLD_STAMP_KEY}\n"}, [][]stamp.Source{nil, {{Topic: "flights", Key: []byte(key)}, {Topic: "flights", Key: []byte(old)}}, nil}},
		"with an old key of another file": {[]string{"{hub: flights}", "{hub: flights}, from: raw", "  clean:\n", own + "    old_stamp_key: ${OLD_STAMP_KEY}\n"}, [][]stamp.Source{
			{{Topic: "raw", Key: []byte(key)}, {Topic: "raw", Key: []byte(old)}}, {{Topic: "flights", Key: []byte(key)}, {Topic: "flights", Key: []byte(old)}}, nil}},
		"named too":              {[]string{"{eventhub: {hub: clean}}", "{eventhub: {hub: clean}, from: Flights}"}, [][]stamp.Source{nil, {{Topic: "flights"}}, nil}},
		"in capital letters":     {[]string{"{hub: clean}", "{hub: CLEAN}"}, [][]stamp.Source{nil, {{Topic: "flights"}}, nil}},
		"of another file":        {[]string{"{hub: flights}", "{hub: flights}, from: raw"}, [][]stamp.Source{{{Topic: "raw"}}, {{Topic: "flights"}}, nil}},
		"checkpoints elsewhere":  {[]string{"{hub: clean}", "{hub: clean, checkpoint_namespace: x}"}, [][]stamp.Source{nil, {{Topic: "flights"}}, nil}},
		"of another's namespace": {[]string{"{hub: clean}", "{hub: clean, namespace: fabrikam.servicebus.windows.net, credential: default}"}, [][]stamp.Source{nil, nil, nil}},
	} {
		f, err := ParseFile("p.yaml", []byte(editStages(t, c.edits...)), environment("STAMP_KEY="+key, "OLD_STAMP_KEY="+old))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for i, p := range f.Stages {
			if got := p.StampsFrom(); !reflect.DeepEqual(got, c.want[i]) {
				t.Errorf("%s: stage %s believes stamps from %v, want %v", name, p.Name, got, c.want[i])
			}
		}
	}
	for _, c := range []struct{ line, edited, want string }{
		{"batch: 500", "old_stamp_key: ${STAMP_KEY}", "old_stamp_key: goes with stamp_key"},
		{"  figures:\n", "  figures:\n    stamp_key: ${STAMP_KEY}\n", "stages.figures.stamp_key: stage clean, which sends to this one, has no stamp_key"},
		{"{eventhub: {hub: clean}}", "{eventhub: {hub: FLIGHTS}}", "reads hub FLIGHTS in the consumer group $Default as stage clean does"},
		{"        hub: clean", "        hub: FLIGHTS", "hub FLIGHTS is the source of the pipeline"},
	} {
		_, err := ParseFile("p.yaml", []byte(editStages(t, c.line, c.edited)), environment("STAMP_KEY="+key))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.edited, err, c.want)
		}
	}
	// An unsigned stamp would do as well as a signed one.
	_, err := ParseFile("p.yaml", []byte(editStages(t, "  clean:\n", own, "{eventhub: {hub: clean}}", "{eventhub: {hub: clean}, from: Flights}")), environment("STAMP_KEY="+key))
	if err == nil || !strings.Contains(err.Error(), "p.yaml:8:5: stages.clean.stamp_key: stage figures would believe unsigned stamps of hub flights too: give a stamp_key") {
		t.Errorf("named too, without a key: %v", err)
	}
	for value, want := range map[string]string{
		"${STAMP_KEY}":                     "p.yaml:4:1: stamp_key: has 5 bytes: use at least 16 random ones",
		"0123456789abcdef0123456789abcdef": "p.yaml:4:1: stamp_key: is a secret: put it into an environment variable",
	} {
		_, err := ParseFile("p.yaml", []byte(editStages(t, "batch: 500", "stamp_key: "+value)), environment("STAMP_KEY=short"))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "short") || strings.Contains(err.Error(), key) {
			t.Errorf("%s: %v, want %s", value, err, want)
		}
	}
}
