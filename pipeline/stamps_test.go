package pipeline

import (
	"reflect"
	"strings"
	"testing"

	"github.com/sluice-go/sluice"
)

// A stage believes the stamps of the stages that send to its hub, and of the one that
// source.from names.
func TestStampsFrom(t *testing.T) {
	const key = "0123456789abcdef0123456789abcdef"
	toTable := []string{"    source: {eventhub: {hub: figures}}\n    target:\n      insert", "    source: {eventhub: {hub: clean, consumer_group: x}}\n    target:\n      insert"}
	for name, c := range map[string]struct {
		edits []string
		want  [][]sluice.StampSource
	}{
		"as it is":               {nil, [][]sluice.StampSource{nil, {{Topic: "flights"}}, nil}},
		"a hub of two stages":    {toTable, [][]sluice.StampSource{nil, {{Topic: "flights"}}, {{Topic: "flights"}}}},
		"with a key":             {[]string{"batch: 500", "stamp_key: ${STAMP_KEY}"}, [][]sluice.StampSource{nil, {{Topic: "flights", Key: []byte(key)}}, nil}},
		"of another file":        {[]string{"{hub: flights}", "{hub: flights}, from: raw"}, [][]sluice.StampSource{{{Topic: "raw"}}, {{Topic: "flights"}}, nil}},
		"checkpoints elsewhere":  {[]string{"{hub: clean}", "{hub: clean, checkpoint_namespace: x}"}, [][]sluice.StampSource{nil, {{Topic: "flights"}}, nil}},
		"of another's namespace": {[]string{"{hub: clean}", "{hub: clean, namespace: fabrikam.servicebus.windows.net, credential: default}"}, [][]sluice.StampSource{nil, nil, nil}},
	} {
		f, err := ParseFile("p.yaml", []byte(editStages(t, c.edits...)), environment("STAMP_KEY="+key))
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
