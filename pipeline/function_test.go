package pipeline

import (
	"strings"
	"testing"

	"github.com/sluice-go/sluice"
)

func TestFunctions(t *testing.T) {
	e := &sluice.Event{
		Partition: "3", Key: "K1", Properties: map[string]any{"site": "north", "none": nil, "raw": []byte{0xff}},
		Body: []byte(`{"a":"x","b":" Y ","n":7,"yes":true,"null":null,"list":[1],"topic":"dev/7/temp","odd, (key)":"z","empty":""}`),
	}
	for from, want := range map[string]string{
		`concat(body.a, "-", body.n)`:                       "x-7",
		`concat( body.a , "," , "(" , body["odd, (key)"])`:  "x,(z",
		`concat(partition, ":", key, ":", properties.site)`: "3:K1:north",
		`concat(body.a, body.yes)`:                          "xtrue",
		`concat(body.a, body.none)`:                         "is missing",
		`concat(body.a, body.null)`:                         "is null",
		`concat(body.a, body.list)`:                         "an array or object where a text",
		`concat(body.a, properties.raw)`:                    "bytes where a text",
		`coalesce(body.none, body.null, body.a)`:            "x",
		`coalesce(body.empty, body.a)`:                      "",
		`coalesce(body.none, properties.none, "?")`:         "?",
		`coalesce(body.none, body.nothing)`:                 "is missing",
		`lower(upper(body.a))`:                              "x",
		`trim(body.b)`:                                      "Y",
		`part(body.topic, "/", 2)`:                          "7",
		`part(body.topic, "/", -1)`:                         "temp",
		`part(body.topic, "/", 4)`:                          "is missing",
		`coalesce(part(body.topic, "/", -4), "none")`:       "none",
		`replace(body.topic, "/", ".")`:                     "dev.7.temp",
		`lower(concat(part(body.topic, "/", 1), "\u00c4"))`: "devä",
	} {
		quoted := "'" + strings.ReplaceAll(from, "'", "''") + "'"
		rows, err := mappingOf(t, "v: {from: "+quoted+", required: true}").rows([]*sluice.Event{e}, nil)
		switch {
		case err != nil && !strings.Contains(err.Error(), want), err == nil && rows[0][0] != want:
			t.Errorf("%s = %v, %v, want %s", from, rows, err, want)
		}
	}
	rows, err := mappingOf(t, "v: {from: 'coalesce(body.none, body.n)', type: integer}").rows([]*sluice.Event{e}, nil)
	if err != nil || rows[0][0] != int64(7) {
		t.Errorf("coalesce of a number = %v, %v", rows, err)
	}
}

func TestWrongFunctions(t *testing.T) {
	for from, want := range map[string]string{
		`lowr(body.a)`:                "did you mean lower?",
		`md5(body.a)`:                 "there is no function md5: there are coalesce, concat",
		`lower(body.a`:                "lower( is not closed",
		`lower(body.a) `:              "follows the end",
		`lower()`:                     "an argument is missing",
		`lower(body.a, body.b)`:       "lower has one argument, not 2",
		`concat(body.a)`:              "concat has 2 to 20 arguments, not 1",
		`concat("a", "b")`:            "no value of the event: write default",
		`concat(body, "b")`:           "the whole body cannot be an argument",
		`concat(bdy.a, "b")`:          `"bdy.a"`,
		`concat(body.a, "b)`:          "not a text in double quotes",
		`part(body.a, "", 1)`:         `argument 2 must be a text`,
		`part(body.a, "/", 0)`:        "argument 3 must be the number of a part",
		`part(body.a, "/", "one")`:    "argument 3 must be the number of a part",
		`replace(body.a, body.b, "")`: "argument 2 must be a text",
		`lower(body.a)x`:              "follows the end",
		strings.Repeat("lower(", 12) + `body.a` + strings.Repeat(")", 12): "more than 10 calls in each other",
	} {
		if _, err := parseOrigin(from); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", from, err, want)
		}
	}
}

// FuzzFunctions: what was parsed is shown in a form that is parsed to the same.
func FuzzFunctions(f *testing.F) {
	for _, text := range []string{`concat(body.a, "-", key)`, `part(body["a, b"].c[0], "/", -1)`, `coalesce(lower(properties.x), "?")`} {
		f.Add(text)
	}
	e := &sluice.Event{Body: []byte(`{"a":"x"}`), Key: "k"}
	f.Fuzz(func(t *testing.T, text string) {
		from, err := parseOrigin(text)
		if err != nil || from.field != fieldCall {
			return
		}
		again, err := parseOrigin(from.String())
		if err != nil || again.String() != from.String() {
			t.Fatalf("%s is shown as %s, which is %s, %v", text, from, again, err)
		}
		m := newMapping("value", []column{{name: "v", origin: from, typ: typeText}})
		m.rows([]*sluice.Event{e}, nil) // must not panic
	})
}
