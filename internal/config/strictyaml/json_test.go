package strictyaml

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

func TestJSON(t *testing.T) {
	for text, want := range map[string]string{
		"{b: 1, a: [x, '1', 2.50, true, null, ~, no, 2026-01-31, \"${X}\"]}": `{"b":1,"a":["x","1",2.50,true,null,null,"no","2026-01-31","${X}"]}`,
		"a: -1e3\nb:\nc: |\n  x\n  <y>\nd: {}\ne: []\n":                      `{"a":-1e3,"b":null,"c":"x\n<y>\n","d":{},"e":[]}`,
		"a: 007":         `f:1:1: a: "007": JSON has no such number: quote it if it is a text`,
		"a: {b: .inf}":   `f:1:5: a.b: ".inf": JSON has no such number: quote it if it is a text`,
		"a: [{b: 0x1F}]": `f:1:6: a[0].b: "0x1F": JSON has no such number: quote it if it is a text`,
		"a: 1\na: 2":     "f:2:1: a: duplicate key: line 1 has it already",
	} {
		var got json.RawMessage
		err := Read("f", []byte(text), os.LookupEnv, func(n Node) { n.JSON(&got) })
		if err != nil {
			got = json.RawMessage(err.Error())
		}
		if string(got) != want || err == nil && !json.Valid(got) || err != nil && !strings.HasPrefix(want, "f:") {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}
