package strictyaml_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/internal/config/strictyaml"
)

// TestFailAt finds the word "fault" in a text, as it stands in the file.
func TestFailAt(t *testing.T) {
	for _, file := range []string{
		"rule: a > fault\n",
		"rule:   \"a > \\\"x\\\" fault\"\n",
		"rule: 'it''s a fault'\n",
		"rule: 'Größe ✈ > fault'\n",
		"rule: |\n  a > 1\n  && fault > 2\n",
		"rule: >-\n    a > 1\n    && fault\n",
		"rule: a > 1\n  && b > 2 ||\n  fault\n",
		"x: 1\nrule: {up: 1 > 2, down: 3 > fault}\n",
		"rule: fault\n",
	} {
		before, _, _ := strings.Cut(file, "fault")
		line := strings.Count(before, "\n") + 1
		column := len([]rune(before[strings.LastIndex(before, "\n")+1:])) + 1
		err := strictyaml.Read("f", []byte(file), nil, func(n strictyaml.Node) {
			var walk func(strictyaml.Node)
			walk = func(n strictyaml.Node) {
				if n.IsMapping() {
					n.Each(func(_ string, n strictyaml.Node) { walk(n) })
					return
				}
				var text string
				n.Verbatim(&text)
				if i := strings.Index(text, "fault"); i >= 0 {
					n.FailAt(i, "here")
				}
			}
			walk(n)
		})
		want := fmt.Sprintf("f:%d:%d: rule", line, column)
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", file, err, want)
		}
	}
}
