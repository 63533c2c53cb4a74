package pipeline

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/config/strictyaml"
	"github.com/sluice-go/sluice/pipeline/internal/rollup"
)

// soundStages is a file of three stages without problems.
const soundStages = `eventhub:
  connection: ${EVENTHUB_CONNECTION_STRING}
partitions: all
batch: 500
database: ${DATABASE_URL}
stages:
  clean:
    source: {eventhub: {hub: flights}, start: earliest}
    order: none
    target:
      eventhub:
        hub: clean
        key: body.origin
        body:
          airport: body.origin
          departure: {from: body.departure, type: timestamp}
          delay: {from: body.delay, type: integer}
  figures:
    source: {eventhub: {hub: clean}}
    memory:
      keep: 24h
      group: {airport: body.airport, hour: hour(body.departure)}
      figures: {flights: count, delay: sum(body.delay), worst: max(body.delay)}
    target: {eventhub: {hub: figures}}
  table:
    partitions: 2
    source: {eventhub: {hub: figures}}
    target:
      insert:
        table: figures
        columns: {version: body.version}
`

func editStages(t *testing.T, edits ...string) string {
	t.Helper()
	return replaced(t, soundStages, edits)
}

func TestStages(t *testing.T) {
	f, err := ParseFile("dir/p.yaml", []byte(soundStages), environment())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range f.Stages {
		names = append(names, p.Name)
		if p.Group.Namespace != "contoso.servicebus.windows.net" || p.storage.database != (sqliteDatabase{"flights.db"}) || p.config.MaxBatch != 500 {
			t.Errorf("stage %s has %v, %v, %+v", p.Name, p.Group, p.storage.database, p.config)
		}
	}
	if want := []string{"clean", "figures", "table"}; !reflect.DeepEqual(names, want) {
		t.Fatalf("stages %q, want %q", names, want)
	}
	clean, middle, table := f.Stages[0], f.Stages[1], f.Stages[2]
	hub, _ := targetOf[*messageTarget](clean).destination.(*hub)
	if clean.Rollup || hub == nil || hub.name != "clean" || hub.connection != connection || len(targetOf[*messageTarget](clean).group) != 1 || targetOf[*messageTarget](clean).whole {
		t.Errorf("clean goes to %+v", targetOf[*messageTarget](clean))
	}
	m := middle.rollup
	if !middle.Rollup || m.keep != 24*time.Hour || m.late != 12*time.Hour || m.unit != time.Hour || m.time != 1 || m.key != 0 ||
		!reflect.DeepEqual(m.stats, []groupStat{{"flights", rollup.Count, 2}, {"delay", rollup.Sum, 2}, {"worst", rollup.Max, 3}}) {
		t.Errorf("memory %+v", m)
	}
	if table.Partitions != 2 || clean.Partitions != sluice.AllPartitions || table.Table != "figures" {
		t.Errorf("table %+v", table)
	}

	if p, err := f.Stage("figures"); err != nil || p != middle {
		t.Errorf("figures: %v, %v", p, err)
	}
	for name, want := range map[string]string{
		"":      "dir/p.yaml: has several stages, name one of them: clean, figures, table",
		"clena": `dir/p.yaml: has no stage "clena": its stages are clean, figures, table`,
	} {
		if _, err := f.Stage(name); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", name, err, want)
		}
	}
	if _, err := Parse("dir/p.yaml", []byte(soundStages), environment()); err == nil {
		t.Error("three stages were taken for one pipeline")
	}
	single, err := ParseFile("p.yaml", []byte(sound), environment())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", "flights"} {
		if p, err := single.Stage(name); err != nil || p != single.Stages[0] {
			t.Errorf("%q: %v, %v", name, p, err)
		}
	}
}

func TestStagesVariations(t *testing.T) {
	for name, c := range map[string]struct {
		file  string
		check func(f *File) bool
	}{
		"leases of its own": {editStages(t, "    order: none\n", "    leases: {sql: sqlite:other.db}\n"), func(f *File) bool {
			return f.Stages[0].storage.database == sqliteDatabase{"other.db"} && f.Stages[1].storage.database == sqliteDatabase{"flights.db"}
		}},
		"namespace of its own": {editStages(t, "{eventhub: {hub: figures}}\n  table", "{eventhub: {hub: figures, namespace: fabrikam.servicebus.windows.net, credential: default}}\n  table"), func(f *File) bool {
			hub := targetOf[*messageTarget](f.Stages[1]).destination.(*hub)
			return hub.host == "fabrikam.servicebus.windows.net" && hub.connection == ""
		}},
		"body as it is": {editStages(t, soundStages[strings.Index(soundStages, "        key: body.origin"):strings.Index(soundStages, "  figures:\n")], ""), func(f *File) bool {
			return targetOf[*messageTarget](f.Stages[0]).whole && targetOf[*messageTarget](f.Stages[0]).group == nil
		}},
		"lateness and key": {editStages(t, "keep: 24h", "keep: 96h\n      late: 72h", "hour(", "day(", "{hub: figures}}\n  table", "{hub: figures, key: hour}}\n  table"), func(f *File) bool {
			m := f.Stages[1].rollup
			return m.late == 72*time.Hour && m.unit == 24*time.Hour && m.key == 1
		}},
	} {
		f, err := ParseFile("p.yaml", []byte(c.file), environment())
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if !c.check(f) {
			t.Errorf("%s: got %+v", name, f.Stages)
		}
	}
}

// Every line names file, line, column and key; what all stages share is
// complained of once.
func TestStagesErrors(t *testing.T) {
	for _, c := range []struct{ file, want string }{
		{editStages(t, "batch: 500", "batch: 0"), `p.yaml:4:1: batch: "0": write a whole number from 1 to 100000`},
		{editStages(t, "${DATABASE_URL}", "'sqlite:'"), `p.yaml:5:1: database: sqlite: has no path: write sqlite:PATH`},
		{editStages(t, "batch: 500", "rate: {events: 1}"), `p.yaml:4:1: rate: unknown key: known keys are assign`},
		{editStages(t, "        key: body.origin\n", "        only: {status: departed}\n"), `p.yaml:13:16: stages.clean.target.eventhub.only.status: "status": write `},
		{editStages(t, "        key: body.origin\n", "        only: {body.a: x}\n", "  clean:\n", "  clean:\n    only: {body.b: y}\n"), `stages.clean.target.eventhub.only: is given twice: line 8 has it too`},
		{editStages(t, "        key: body.origin\n", "        only: {body: x}\n"), `stages.clean.target.eventhub.only.body: cannot be the whole body: write body.PATH`},
		{editStages(t, "        key: body.origin\n", "        only: {}\n"), `p.yaml:13:9: stages.clean.target.eventhub.only: has no values: write them as body.PATH: VALUE`},
		{editStages(t, "batch: 500", "name: x"), `p.yaml:4:1: name: unknown key: known keys are assign, batch, database, eventhub, fill, kafka, lease, memory_limit, old_stamp_key, partitions, prefetch, retry, silent_after, stages, stall_after, stamp_key`},
		{editStages(t, "partitions: all\n", ""), "p.yaml:6:3: stages.clean.partitions: is missing\np.yaml:17:3: stages.figures.partitions: is missing"},
		{editStages(t, "    order: none\n", "    name: x\n"), `p.yaml:9:5: stages.clean.name: unknown key`},
		{editStages(t, "  clean:\n", "  the first:\n"), `p.yaml:7:3: stages.the first: not a valid name for a stage: write up to 63 letters, digits, - and _`},
		{editStages(t, "  connection: ${EVENTHUB_CONNECTION_STRING}\n", "  credential: default\n"), `p.yaml:1:1: eventhub: needs one of connection`},
		{editStages(t, "{eventhub: {hub: figures}}\n    target:\n", "{eventhub: {hub: clean}}\n    target:\n"), `p.yaml:25:3: stages.table: reads hub clean in the consumer group $Default as stage figures does: each needs a consumer group of its own`},
		{editStages(t, "hub: clean\n", "hub: flights\n"), `p.yaml:11:7: stages.clean.target.eventhub: hub flights is the source of the pipeline: events would circulate for ever`},
		{editStages(t, "    order: none\n", "    database: sqlite:x.db\n"), `p.yaml:9:5: stages.clean.database: is for a target in a database: for this target write leases`},
		{editStages(t, "database: ${DATABASE_URL}\n", ""), "p.yaml:6:3: stages.clean: leases are missing: write leases: {sql: sqlite:PATH}, where checkpoints and dead letters are stored too\n"},
		{editStages(t, "    target: {eventhub: {hub: figures}}\n", "    order: none\n    target: {eventhub: {hub: figures}}\n"), `p.yaml:24:5: stages.figures.order: cannot be combined with memory, which is read again at every start: remove it`},
		{editStages(t, "{eventhub: {hub: clean}}", "{eventhub: {hub: clean}, start: earliest}"), `p.yaml:19:38: stages.figures.source.start: is for stages with checkpoints: memory.keep sets how far back the hub is read`},
		{editStages(t, "    target: {eventhub: {hub: figures}}\n", "    dead_letters: {store_bodies: true}\n    target: {eventhub: {hub: figures}}\n"), `stages.figures.dead_letters: cannot be combined with memory, which has no dead letters: remove it`},
		{editStages(t, "    target: {eventhub: {hub: figures}}\n", "    target: {insert: {table: t, columns: {a: sequence}}}\n"), `p.yaml:20:5: stages.figures.memory: its statistics go to a hub, a queue or a topic: write target: {eventhub: {hub: …}}`},
		{editStages(t, "{eventhub: {hub: figures}}\n  table", "{eventhub: {hub: figures, body: {a: sequence}}}\n  table"), `stages.figures.target.eventhub.body: unknown key`},
		{editStages(t, "    order: none\n", "    rate: {ru: 400}\n"), `p.yaml:9:12: stages.clean.rate.ru: is for Cosmos DB only: write events`},
		{editStages(t, "partitions: all", "partitions: balanced"), `p.yaml:3:1: partitions: balanced: a stage with memory must keep its partitions: write all, or a whole number`},
		{editStages(t, "keep: 24h", "keep: 90m"), `p.yaml:20:5: stages.figures.memory: late is 45m0s: it must be longer than the group's 1h0m0s, and keep longer than late (late is half of keep by default)`},
		{editStages(t, "keep: 24h", "keep: 2h\n      late: 119m"), `memory: keep is 2h0m0s and late 1h59m0s: keep must be longer than late by more than 5m0s; the stage may be down for the rest of the difference`},
		{editStages(t, "hour: hour(body.departure)", "hour: body.departure"), `stages.figures.memory.group: time is missing: write one, such as hour(body.departure)`},
		{editStages(t, "airport: body.airport", "day: day(body.departure)"), `p.yaml:22:41: stages.figures.memory.group.hour: a second time: write only one`},
		{editStages(t, "hour(body.departure)", "year(body.departure)"), `stages.figures.memory.group.hour: "year(body.departure)": write minute(…), hour(…) or day(…) around a time, or body.PATH`},
		{editStages(t, "hour(body.departure)", "hour(partition)"), `partition can't become timestamp: write one of text, smallint, integer, bigint`},
		{editStages(t, "airport: body.airport", "airport: body"), `cannot be the whole body: write body.PATH`},
		{editStages(t, "sum(body.delay)", "smu(body.delay)"), `stages.figures.memory.figures.delay: "smu(body.delay)": did you mean sum?`},
		{editStages(t, "sum(body.delay)", "sum"), `stages.figures.memory.figures.delay: "sum": write count, sum(body.PATH), min(…), max(…) or avg(…)`},
		{editStages(t, "flights: count", "flights: count(body.delay)"), `"count(body.delay)": write count, sum(body.PATH), min(…), max(…) or avg(…)`},
		{editStages(t, "sum(body.delay)", "sum(body.)"), `stages.figures.memory.figures.delay: "body."`},
		{editStages(t, "flights: count", "airport: count"), `stages.figures.memory: two fields named airport`},
		{editStages(t, "flights: count", "version: count"), `stages.figures.memory: two fields named version`},
		{editStages(t, "{hub: figures}}\n  table", "{hub: figures, key: gate}}\n  table"), `stages.figures.target.eventhub.key: "gate": write one of the group's names: airport, hour`},
	} {
		_, err := ParseFile("p.yaml", []byte(c.file), environment())
		if err == nil || !strings.Contains(err.Error()+"\n", c.want) {
			t.Errorf("got  %v\nwant %s", err, c.want)
			continue
		}
		lines := map[string]bool{}
		for _, p := range err.(strictyaml.Problems) {
			if lines[p.Error()] {
				t.Errorf("reported twice: %v", p)
			}
			lines[p.Error()] = true
		}
	}
}
