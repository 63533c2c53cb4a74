package connector

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-go/sluice/cmd/sluice/internal/newfile"
)

// writer writes the lines of a file.
type writer struct {
	strings.Builder
	indent string
}

func (w *writer) line(format string, args ...any) {
	fmt.Fprintf(w, w.indent+format+"\n", args...)
}

func (w *writer) indented(f func()) {
	before := w.indent
	w.indent += "  "
	f()
	w.indent = before
}

const longest = 400 // of a comment

// file returns the text of the pipeline file.
func (t *translator) file(to *writes) string {
	w := &writer{}
	w.line("# Made of the sink %s of Kafka Connect (%s), by sluice init --from-connector.", newfile.Comment(t.Name, 100), t.class)
	w.line("# ${NAME} is an environment variable. All keys: sluice help pipeline.")
	t.notes(w, "To do first:", t.result.Todo)
	t.notes(w, "What the connector has and this file has not, or does in another way:", t.result.Different)
	if len(t.result.Needless) > 0 {
		needless := make([]string, len(t.result.Needless))
		for i, n := range t.result.Needless {
			needless[i] = newfile.Comment(n.Key, 100)
		}
		w.line("#\n# Without a counterpart, and without an effect on rows: %s", newfile.Comment(strings.Join(needless, ", "), 10*longest))
	}
	w.line("")
	if len(t.stages) == 1 {
		t.shared(w, false)
		t.stage(w, &t.stages[0], to, false)
		return w.String()
	}
	t.shared(w, true)
	w.line("stages:")
	for i := range t.stages {
		w.indented(func() {
			w.line("%s:", newfile.Quoted(t.stages[i].name))
			w.indented(func() { t.stage(w, &t.stages[i], to, true) })
		})
	}
	return w.String()
}

func (t *translator) notes(w *writer, title string, notes []Note) {
	if len(notes) == 0 {
		return
	}
	w.line("#\n# %s", title)
	for _, n := range notes {
		w.line("# - %s: %s", newfile.Comment(n.Key, 100), newfile.Comment(n.Text, longest))
	}
}

// todoVariable is a variable that nobody sets. A file with something to do needs it, so that it
// does not run by mistake.
const todoVariable = "TODO"

// shared writes what all stages share.
func (t *translator) shared(w *writer, several bool) {
	if several {
		w.line("kafka:")
		w.indented(func() { t.cluster(w) })
	}
	if len(t.result.Todo) > 0 {
		w.line("memory_limit: ${%s} # delete this line once all that is to do is done", todoVariable)
	}
	w.line("partitions: balanced # each process owns a fair share")
	w.line("database: %s # rows, leases, checkpoints and dead letters", newfile.WithVariables(t.db.url))
}

// cluster writes how brokers are reached.
func (t *translator) cluster(w *writer) {
	s := &t.source
	w.line("brokers: %s", newfile.WithVariables(s.brokers))
	if s.clientID != "" {
		w.line("client_id: %s", newfile.WithVariables(s.clientID))
	}
	t.security(w)
}

func (t *translator) security(w *writer) {
	if t.source.tls {
		w.line("tls: true")
	}
	if t.source.sasl != "" {
		w.line("sasl: %s", t.source.sasl)
	}
}

func (t *translator) stage(w *writer, s *stage, to *writes, several bool) {
	w.line("source:")
	w.indented(func() {
		w.line("kafka:")
		w.indented(func() {
			if !several {
				t.cluster(w)
			}
			w.line("topic: %s", newfile.WithVariables(s.topic))
			w.line("group: %s # the name of checkpoints", newfile.Quoted(t.Name))
			if t.source.isolation != "" {
				w.line("isolation: %s", t.source.isolation)
			}
		})
		t.body(w)
		w.line("start: %s", t.source.start)
	})
	if to.batch > 0 {
		w.line("batch: %d", to.batch)
	}
	if to.copies != "" {
		w.line("dead_letters:")
		w.indented(func() {
			w.line("copy_to:")
			w.indented(func() {
				w.line("kafka:")
				w.indented(func() {
					w.line("brokers: %s", newfile.WithVariables(t.source.brokers))
					w.line("topic: %s", newfile.WithVariables(variables(to.copies)))
					t.security(w)
				})
			})
		})
	}
	if to.only != "" {
		w.line("only: %s", to.only)
	}
	w.line("target:")
	w.indented(func() { t.target(w, s, to) })
}

// body writes source.format.
func (t *translator) body(w *writer) {
	f := t.format
	if t.value.changes {
		f.envelope = "debezium"
	}
	if f.envelope+f.encoding == "" {
		return
	}
	w.line("format:")
	w.indented(func() {
		if f.envelope != "" {
			w.line("envelope: %s", f.envelope)
		}
		if f.encoding == "" {
			return
		}
		w.line("encoding: %s", f.encoding)
		w.line("registry:")
		w.indented(func() {
			w.line("confluent:")
			w.indented(func() {
				w.line("url: %s", newfile.WithVariables(f.registry))
				if f.user != "" {
					w.line("user: %s\n%spassword: %s", newfile.WithVariables(f.user), w.indent, f.password)
				}
				if f.auth != "" {
					w.line("token: %s", f.auth)
				}
			})
		})
	})
}

func (t *translator) target(w *writer, s *stage, to *writes) {
	if to.update {
		t.statement(w, s, to)
		return
	}
	w.line("insert: # exactly once")
	w.indented(func() {
		w.line("table: %s", newfile.WithVariables(s.table))
		if to.create {
			w.line("create: true")
		}
		if to.evolve {
			w.line("evolve: true")
		}
		if len(to.key) > 0 {
			keys := make([]string, len(to.key))
			for i, k := range to.key {
				keys[i] = newfile.Quoted(k)
			}
			w.line("key: [%s]", strings.Join(keys, ", "))
		}
		if to.deleteWhen != "" {
			w.line("delete_when: %s", to.deleteWhen)
		}
		if to.truncates != "" {
			w.line("truncates: %s", to.truncates)
		}
		w.line("columns:")
		w.indented(func() { t.mapping(w, s, to, func(c newfile.Column) string { return c.Name }) })
	})
}

// mapping writes columns or parameters.
func (t *translator) mapping(w *writer, s *stage, to *writes, name func(newfile.Column) string) {
	for _, c := range to.columns {
		if c.From == topicPlace {
			fix(&c, strings.ReplaceAll(s.topic, "$${", "${"))
			c.Required = false
		}
		c.Name = name(c)
		w.line("%s", c.Text())
	}
}

// statement writes an update of rows that are there.
func (t *translator) statement(w *writer, s *stage, to *writes) {
	var set, where []string
	parameter := map[string]string{}
	for i, c := range to.columns {
		parameter[c.Name] = fmt.Sprintf("p%d", i+1)
		assigned := t.quote(c.Name) + " = :" + parameter[c.Name]
		if slices.Contains(to.key, c.Name) {
			where = append(where, assigned)
		} else {
			set = append(set, assigned)
		}
	}
	if len(set) == 0 {
		set = where
	}
	table := make([]string, 0, 2)
	for part := range strings.SplitSeq(s.table, ".") {
		table = append(table, t.quote(part))
	}
	w.line("statement: # exactly once")
	w.indented(func() {
		w.line("sql: %s", newfile.WithVariables("UPDATE "+strings.Join(table, ".")+" SET "+strings.Join(set, ", ")+" WHERE "+strings.Join(where, " AND ")))
		w.line("parameters:")
		w.indented(func() { t.mapping(w, s, to, func(c newfile.Column) string { return parameter[c.Name] }) })
	})
}

// quote quotes a name for SQL.
func (t *translator) quote(name string) string {
	switch t.db.kind {
	case "mysql":
		return "`" + strings.ReplaceAll(name, "`", "``") + "`"
	case "sqlserver":
		return "[" + strings.ReplaceAll(name, "]", "]]") + "]"
	}
	return `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
}
