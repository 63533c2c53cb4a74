package pipeline

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// tested parses a file with tests, each in one line of YAML.
func tested(t *testing.T, format, rest string, tests ...string) (*Pipeline, error) {
	t.Helper()
	text := "source: {kafka: {brokers: 'a:1', topic: t}" + format + "}\npartitions: all\ndatabase: sqlite:x.db\n" + rest + "\ntests:\n"
	for _, one := range tests {
		text += "  - " + one + "\n"
	}
	return Parse("f.yaml", []byte(text), os.LookupEnv)
}

const (
	typesTarget = `target: {insert: {table: t, columns: {n: sequence, s: {from: body.s, required: false}, i: {from: body.i, type: integer}, ` +
		`d: {from: body.d, type: double, required: false}, m: {from: body.m, type: numeric, required: false}, b: {from: body.b, type: boolean, required: false}, ` +
		`at: {from: body.at, type: timestamp, format: unix, required: false}, day: {from: body.day, type: date, format: dd.MM.yyyy, required: false}, ` +
		`j: {from: body.j, type: json, required: false}, y: {from: body.y, type: bytes, required: false}, k: {from: key, required: false}}}}`
	routesTarget = "only: {properties.x: {not: '1'}}\nroutes: [{only: {body.a: u}, target: {insert: {table: u, columns: {a: body.a}}}}, {target: {insert: {table: t, columns: {b: body.b}}}}]"
	keyedTarget  = "target: {insert: {table: t, key: [id], delete_when: {body.op: d}, columns: {id: {from: body.id, type: integer}, x: {from: body.x, required: false}}}}"
	arrayTarget  = "target: {insert: {table: t, each: body.l, columns: {i: each_index, v: {from: each, type: integer}}}}"
)

func TestTestsRun(t *testing.T) {
	events := filepath.Join(t.TempDir(), "e.ndjson")
	lines := "{\"i\":1}\n\n" + `{"partition":"3","sequence":9,"key":"k","properties":{"x":"2"},"body":{"i":"2","s":"z"}}` + "\n"
	if err := os.WriteFile(events, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ target, test, want string }{
		{typesTarget, "{event: {body: {i: 1}}, expect: {row: {i: 1, n: 1, s: null, at: ~}}}", ""},
		{typesTarget, "{event: {body: {i: 1}}, expect: {row: {i: 2, n: 1}}}", "i: want 2, got 1 (integer from body.i)"},
		{typesTarget, "{event: {body: {i: 1, s: 5}}, expect: {row: {s: 5}}}", ""},
		{typesTarget, "{event: {body: {i: 1, s: '5'}}, expect: {row: {s: 5.0, i: '1'}}}", `s: want 5.0, got "5" (text from body.s)`},
		{typesTarget, "{event: {body: {i: 1, s: x}}, expect: {row: {s: null, d: 1}}}", `s: want NULL, got "x" (text from body.s) | d: want 1, got no value (double from body.d)`},
		{typesTarget, "{event: {body: {i: 1, d: 1.50, m: 2.50, b: 'TRUE'}}, expect: {row: {d: 1.5, m: 2.5, b: true}}}", ""},
		{typesTarget, "{event: {body: {i: 1, d: 1.50, m: 2.50, b: false}}, expect: {row: {d: 1.6, m: 2.51, b: true}}}",
			"d: want 1.6, got 1.5 (double from body.d) | m: want 2.51, got 2.50 (numeric from body.m) | b: want true, got false (boolean from body.b)"},
		{typesTarget, "{event: {body: {i: 1, at: 1783544645, day: 08.07.2026}}, expect: {row: {at: 2026-07-08T21:04:05Z, day: 2026-07-08}}}", ""},
		{typesTarget, "{event: {body: {i: 1, at: 1783544645}}, expect: {row: {at: 2026-07-08 21:04:05}}}", ""},
		{typesTarget, "{event: {body: {i: 1, at: 1783544645}}, expect: {row: {at: 2026-07-08 23:04:05+02:00}}}", ""},
		{typesTarget, "{event: {body: {i: 1, at: 1783544645}}, expect: {row: {at: 2026-07-08 23:04:05}}}", `at: want "2026-07-08 23:04:05", got 2026-07-08 21:04:05Z (timestamp from body.at)`},
		{typesTarget, "{event: {body: {i: 1, j: {a: 1, b: [x, null]}}}, expect: {row: {j: {b: [x, null], a: 1.0}}}}", ""},
		{typesTarget, "{event: {body: {i: 1, j: {a: 1}}}, expect: {row: {j: {a: 1, b: 2}}}}", `j: want {"a":1,"b":2}, got {"a":1} (json from body.j)`},
		{typesTarget, "{event: {body: {i: 1, y: AP8=}}, expect: {row: {y: AP8=}}}", ""},
		{typesTarget, "{event: {body: {i: 1, y: AP8=}}, expect: {row: {y: AP9=}}}", `y: want "AP9=", got "AP8=" (bytes from body.y)`},
		{typesTarget, "{event: {body: '{\"i\": 1}', key: ä}, expect: {row: {k: ä}}}", ""},
		{typesTarget, "{event: {body_base64: eyJpIjogMX0=, sequence: 7}, expect: {row: {n: 7}}}", ""},
		{typesTarget, "{event: {body: {i: x}}, expect: {row: {i: 1}}}", `want a row, got dead letter: column i: body.i: "x" where a whole number should be`},
		{typesTarget, "{event: {body: {i: x}}, expect: {error: whole number}}", ""},
		{typesTarget, "{event: {body: {i: x}}, expect: {error: missing}}", `want dead letter with "missing", got dead letter: column i: body.i: "x" where a whole number should be`},
		{typesTarget, "{event: {body: {i: 1}}, expect: {error: missing}}", `want dead letter with "missing", got a row of t`},
		{typesTarget, "{event: {body: {i: 1}}, expect: {skipped: true}}", `want skipped, got a row of t`},
		{typesTarget, "{events: " + events + ", expect: {rows: [{i: 1, k: null, n: 1}, {i: 2, k: k, n: 9, s: z}]}}", ""},
		{typesTarget, "{events: " + events + ", expect: {rows: [{i: 1}, {i: 3}]}}", `row 2: i: want 3, got 2 (integer from body.i)`},
		{typesTarget, "{events: " + events + ", expect: {rows: [{i: 1}]}}", `want 1 row, got 2 rows`},
		{typesTarget, "{events: " + events + ", expect: {row: {i: 1}}}", `event 2: i: want 1, got 2 (integer from body.i)`},
		{typesTarget, "{events: " + events + ".none, expect: {row: {i: 1}}}", "no such file"},
		{routesTarget, "{event: {body: {a: u}}, expect: {table: u, row: {a: u}}}", ""},
		{routesTarget, "{event: {body: {a: u}}, expect: {route: 1}}", ""},
		{routesTarget, "{event: {body: {a: u}}, expect: {route: 2, row: {b: x}}}", "want a row, route 2, got route 1, a row of u"},
		{routesTarget, "{event: {body: {a: u}}, expect: {table: t}}", "want a row of t, got a row of u"},
		{routesTarget, "{event: {body: {a: u}, properties: {x: 1}}, expect: {skipped: true}}", ""},
		{keyedTarget, "{event: {body: {id: 1, op: d}}, expect: {deleted: {id: 1}}}", ""},
		{keyedTarget, "{event: {body: {id: 1, op: c}}, expect: {deleted: {id: 1}}}", "want deletes a row, got a row of t"},
		{keyedTarget, "{event: {body: {id: 1, op: d}}, expect: {row: {id: 1}}}", "want a row, got deletes a row of t"},
		{keyedTarget, "{event: {body: {id: 1, op: d}}, expect: {deleted: {x: 1}}}", "x: want 1, got no such value"},
		{arrayTarget, "{event: {body: {l: [5, 6]}}, expect: {rows: [{v: 5}, {i: 1, v: 6}]}}", ""},
		{arrayTarget, "{event: {body: {l: [5, 6]}}, expect: {row: {v: 5}}}", "want a row, got 2 rows of t"},
	} {
		p, err := tested(t, "", c.target, c.test)
		if err != nil {
			t.Errorf("%s: %v", c.test, err)
			continue
		}
		if got := differences(t, p); got != c.want && !(c.want == "no such file" && strings.Contains(got, c.want)) {
			t.Errorf("%s:\n got %s\nwant %s", c.test, got, c.want)
		}
	}
}

// differences runs the only test of a pipeline.
func differences(t *testing.T, p *Pipeline) string {
	list, err := p.Tests()[0].Run(t.Context())
	if err != nil {
		return err.Error()
	}
	var texts []string
	for _, d := range list {
		text := ""
		if d.Event > 0 {
			text += fmt.Sprintf("event %d: ", d.Event)
		}
		if d.Row > 0 {
			text += fmt.Sprintf("row %d: ", d.Row)
		}
		if d.Column != "" {
			text += d.Column + ": "
		}
		text += fmt.Sprintf("want %s, got %s", d.Want, d.Got)
		if d.Source != "" {
			text += " (" + d.Source + ")"
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, " | ")
}

func TestTestsOfDecodedBodies(t *testing.T) {
	p, err := tested(t, ", format: {compression: gzip}", arrayTarget, "{decoded: true, event: {body: {l: [5]}}, expect: {row: {v: 5}}}")
	if err != nil {
		t.Fatal(err)
	}
	if got := differences(t, p); got != "" {
		t.Error(got)
	}
	p.Tests()[0].decoded = false
	if got := differences(t, p); !strings.Contains(got, "dead letter: decompress the body: gzip") {
		t.Error(got)
	}
}

func TestTestsRefused(t *testing.T) {
	for test, want := range map[string]string{
		"{event: {body: 1}}":                                                "f.yaml:6:5: tests[0].expect: is missing",
		"{expect: {skipped: true}}":                                         "f.yaml:6:5: tests[0]: needs one of event and events",
		"{event: {}, expect: {skipped: true}}":                              "f.yaml:6:6: tests[0].event: needs one of body and body_base64",
		"{event: {body: 1, body_base64: eA==}, expect: {skipped: true}}":    "tests[0].event: needs one of",
		"{event: {body_base64: 'x'}, expect: {skipped: true}}":              "tests[0].event.body_base64: is not base64",
		"{event: {body: 1, enqueued: today}, expect: {skipped: true}}":      `tests[0].event.enqueued: "today": write a time`,
		"{event: {body: 1, sequence: -1}, expect: {skipped: true}}":         "tests[0].event.sequence: \"-1\": write a whole number",
		"{event: {body: 1, properties: {a: [1]}}, expect: {skipped: true}}": "tests[0].event.properties.a: write a text, a number",
		"{event: {body: 1}, expect: {}}":                                    "tests[0].expect: needs one of row, rows",
		"{event: {body: 1}, expect: {skipped: false}}":                      "tests[0].expect.skipped: write true",
		"{event: {body: 1}, expect: {skipped: true, row: {v: 1}}}":          "tests[0].expect.row: goes without skipped",
		"{event: {body: 1}, expect: {skipped: true, table: t}}":             "tests[0].expect.table: goes without skipped",
		"{event: {body: 1}, expect: {row: {w: 1}}}":                         "f.yaml:6:39: tests[0].expect.row.w: the mapping has no such column: it has i, v",
		"{event: {body: 1}, expect: {rows: [{v: 1}, {w: 1}]}}":              "tests[0].expect.rows[1].w: the mapping has no such column",
		"{event: {body: 1}, expect: {route: 2}}":                            "tests[0].expect.route: the file has no such route: it has 1",
		"{event: {body: 1}, expect: {table: u}}":                            "tests[0].expect.table: no target of the file writes to table u",
		"{event: {body: 1}, expect: {raw: {v: 1}}}":                         "tests[0].expect.raw: unknown key, did you mean row?",
		"{event: {body: 1}, expect: {row: {v: 0x1}}}":                       "tests[0].expect.row.v: \"0x1\": JSON has no such number",
		"{event: {body: {a: 1, a: 2}}, expect: {row: {v: 1}}}":              "tests[0].event.body.a: duplicate key",
	} {
		_, err := tested(t, "", arrayTarget, test)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", test, err, want)
		}
	}
}

// Tests beside a target that is invalid add no problems.
func TestTestsBesideMistakes(t *testing.T) {
	for rest, want := range map[string]string{
		"database: sqlite:x\ntarget: {insert: {table: t, columns: {}}}":                     "columns",
		"database: sqlite:x\ntarget: {insert: 5, statement: {}}":                            "target",
		"database: sqlite:x\ntarget: 5":                                                     "target",
		"database: sqlite:x\nroutes: [{target: 4}, {only: 3}]":                              "routes",
		"leases: {sql: 'sqlite:x'}\nmemory: {keep: x}\ntarget: {kafka: {topic: u}}":         "memory",
		"leases: {sql: 'sqlite:x'}\nmemory: 5\ntarget: {kafka: {topic: u, body: {a: key}}}": "memory",
		"leases: {sql: 'sqlite:x'}\ntarget: {http: {}}":                                     "target",
	} {
		text := "source: {kafka: {brokers: 'a:1', topic: t}}\npartitions: all\n" + rest + "\ntests: [{event: {body: 1}, expect: {row: {a: 1}}}, {event: {body: 1}, expect: {deleted: {b: 1}}}]\n"
		_, err := Parse("f.yaml", []byte(text), os.LookupEnv)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "tests[") {
			t.Errorf("%s: %v", rest, err)
		}
	}
}

// Tests of a stage: a message's fields and a document's properties are compared as a row.
func TestTestsOfStages(t *testing.T) {
	text := `kafka: {brokers: 'a:1'}
partitions: all
leases: {sql: 'sqlite:x.db'}
stages:
  clean:
    source: {kafka: {topic: a}}
    target: {kafka: {topic: b, body: {a: body.a}}}
    tests: [{event: {body: {a: x}}, expect: {row: {a: x}}}, {event: {body: {}}, expect: {error: field a}}]
  store:
    source: {kafka: {topic: b, group: other}}
    target: {cosmos: {endpoint: "https://c.documents.azure.com:443/", key: "${K}", database: d, container: c, id: body.id, partition_key: body.id}}
    tests: [{event: {body: {id: x, v: {a: 1}}}, expect: {row: {v: {a: 1}, id: x}}}]
`
	text = strings.Replace(text, "leases: {sql: 'sqlite:x.db'}\n", "", 1)
	text = strings.ReplaceAll(text, "    source:", "    leases: {sql: 'sqlite:x.db'}\n    source:")
	f, err := ParseFile("f.yaml", []byte(text), func(string) (string, bool) { return "aw==", true })
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, p := range f.Stages {
		for _, test := range p.Tests() {
			if n++; n > 0 {
				if list, err := test.Run(t.Context()); err != nil || len(list) > 0 {
					t.Errorf("%s: %+v, %v", test.Name, list, err)
				}
			}
		}
	}
	if n != 3 {
		t.Errorf("%d tests", n)
	}
}

func TestLoadOfflineForTestsAndTry(t *testing.T) {
	examples, err := filepath.Glob("../examples/*.yaml")
	if err != nil || len(examples) < 5 {
		t.Fatal(err, examples)
	}
	for _, path := range examples {
		if strings.HasSuffix(path, "formats.yaml") {
			t.Setenv("SCHEMA_FILE", "../examples/flight.avsc")
		}
		if _, unset, err := LoadOffline(path); err != nil || len(unset) == 0 {
			t.Errorf("%s: %v, %v", path, unset, err)
		}
	}
	path := filepath.Join(t.TempDir(), "f.yaml")
	for text, want := range map[string]string{
		"source: {kafka: {brokers: '${B}', topic: '${T}'}}\npartitions: '${P}'\ndatabase: 'postgres://${U}:${W}@h/d'\ntarget: {insert: {table: '${T}', columns: {n: sequence}}}":         "",
		"source: {kafka: {brokers: 'a:1', topic: t}}\npartitions: none\ndatabase: '${D}'\ntarget: {insert: {table: t, columns: {n: sequence}}}":                                          `partitions: "none"`,
		"source: {kafka: {brokers: 'a:1', topic: t}, format: {encoding: avro, schema: '${S}'}}\npartitions: all\ndatabase: '${D}'\ntarget: {insert: {table: t, columns: {n: sequence}}}": "the environment variable S is not set",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, unset, err := LoadOffline(path)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%v, want %q; %v", err, want, unset)
		}
	}
}

func TestParseSampleForTry(t *testing.T) {
	for record, want := range map[string]string{
		`{"partition":"3","sequence":7,"offset":"9","enqueued":"2026-07-08T21:04:05Z","key":{"base64":"/wA="},"message_id":"m","properties":{"i":1,"f":1.5,"b":true,"n":null,"y":{"base64":"AP8="}},"body":{"a":1}}`: `true 3/7 key="\xff\x00" map[b:true f:1.5 i:1 n:<nil> y:[0 255]] {"a":1}`,
		`{"partition":"3","sequence":7,"body_text":"x","decode_error":"no"}`: `true 3/7 key="" map[] x`,
		`{"partition":"3","sequence":7,"body_base64":"AP8="}`:                "true 3/7 key=\"\" map[] \x00\xff",
		`{"partition":"3","sequence":7,"key":"","body":null}`:                `true 3/7 key="" map[] empty null`,
		`{"partition":"3","sequence":7,"body":1,"other":2}`:                  `false 0/0 key="" map[] {"partition":"3","sequence":7,"body":1,"other":2}`,
		`{"partition":3,"sequence":7,"body":1}`:                              `false 0/0 key="" map[] {"partition":3,"sequence":7,"body":1}`,
		`{"partition":"3","body":1}`:                                         `false 0/0 key="" map[] {"partition":"3","body":1}`,
		`[1]`:                                                                `false 0/0 key="" map[] [1]`,
		`{"partition":"3","sequence":7,"properties":{"l":[1]},"body":1}`:     "properties.l: write a text, a number, true, false, null or {base64: …}",
		`{"partition":"3","sequence":7,"body_base64":"%"}`:                   "body_base64: is not base64",
	} {
		e, is, err := ParseSample([]byte(record), EventHubs)
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			got = fmt.Sprintf("%t %s/%d key=%q %v ", is, e.Partition, e.Sequence, e.Key, e.Properties)
			if e.EmptyKey {
				got += "empty "
			}
			if got += string(e.Body); e.Body == nil {
				got += "null"
			}
		}
		if got != want {
			t.Errorf("%s:\n got %s\nwant %s", record, got, want)
		}
	}
	e, _, err := ParseSample([]byte(`{"partition":"3","sequence":7,"properties":{"i":1,"b":true},"body":1}`), Kafka)
	if err != nil || e.Properties["i"] != "1" || e.Properties["b"] != "true" {
		t.Errorf("%+v, %v", e, err)
	}
}
