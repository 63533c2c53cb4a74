package pipeline

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-go/sluice"
)

func TestLineage(t *testing.T) {
	insert := sound[strings.Index(sound, "    columns:"):]
	with := func(columns string) string { return edit(t, insert, "    columns: {"+columns+"}\n") }
	for _, c := range []struct{ file, database, want string }{
		{with("hub partition: partition, n: sequence, x: body.x"), "sqlite:x.db", `{sqlite:x.db "flights" "hub partition" "n" }`},
		{with("p: partition, n: {from: sequence, type: text}"), "postgres://u:pw@h/d", `{postgres://u:pw@h/d "flights" "p" "n" }`},
		{with("p`q: partition, n: sequence"), "mysql://u:pw@h/d", "{mysql://u:pw@h/d `flights` `p``q` `n` }"},
		{with("n: sequence"), "sqlite:x.db", "p.yaml:14:1: target: table flights: no column is mapped from partition: an audit needs partition and sequence recorded with the row"},
		{with("p: partition"), "sqlite:x.db", "p.yaml:14:1: target: table flights: no column is mapped from sequence: an audit needs partition and sequence recorded with the row"},
		{edit(t, sound[strings.Index(sound, "  insert:"):], "  statement: {sql: SELECT 1}\n"), "sqlite:x.db", "p.yaml:14:1: target: no table of its own: an audit needs target.insert, with partition and sequence recorded with the row"},
	} {
		p, err := Parse("p.yaml", []byte(c.file), environment("DATABASE_URL="+c.database))
		if err != nil {
			t.Fatal(err)
		}
		trace, err := p.Lineage()
		if err != nil {
			if err.Error() != c.want {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
			continue
		}
		type bare Lineage
		if got := fmt.Sprint(bare(trace[0])); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
		for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
			if got := fmt.Sprintf(verb, trace[0]); strings.Contains(got, "pw") {
				t.Errorf("%s shows a secret: %s", verb, got)
			}
		}
	}
	f, err := ParseFile("p.yaml", []byte(soundStages), environment())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range f.Stages[:2] {
		if _, err := p.Lineage(); err == nil {
			t.Errorf("stage %s has rows", p.Name)
		}
	}
}

func TestSourceAs(t *testing.T) {
	p, err := Parse("p.yaml", []byte(edit(t, "start: earliest", "start: latest")), environment())
	if err != nil {
		t.Fatal(err)
	}
	source, err := p.SourceAs("audit")
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close(t.Context())
	want := p.Group
	want.Name = "audit"
	if got := source.Group(); got != want || p.Group.Name != "$Default" {
		t.Errorf("got %v, want %v", got, want)
	}
	if p.Start() != sluice.Latest() {
		t.Errorf("start %v", p.Start())
	}
}
