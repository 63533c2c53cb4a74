package pipeline

import (
	"strings"
	"testing"
)

// TestPostgresValues: the texts of arrays and of hstore.
func TestPostgresValues(t *testing.T) {
	deep := strings.Repeat(`{"a":`, 9) + "1" + strings.Repeat("}", 9)
	for _, c := range []struct {
		guard      guard
		json, want string // an error begins with !
	}{
		{toArray(false), `[[1,null],["a\"","\\"]]`, `{{1,NULL},{"a\"","\\"}}`},
		{toArray(false), `[{"a":1}]`, "!has an object in the array"},
		{toArray(true), "[" + deep + "]", `{"` + strings.ReplaceAll(deep, `"`, `\"`) + `"}`},
		{toHstore, `{"a":1,"b":null}`, `"a"=>"1", "b"=>NULL`},
		{toHstore, `{"k":1,"a":1,"\u006b":2}`, `!has "\u006b" twice`},
	} {
		got, err := c.guard(ownText(c.json))
		if begin, fails := strings.CutPrefix(c.want, "!"); fails != (err != nil) || !fails && got.text != c.want || fails && !strings.HasPrefix(err.Error(), begin) {
			t.Errorf("%s became %s, %v; want %s", c.json, got.text, err, c.want)
		}
	}
}
