package main_test

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// finding and examined are a result of check as --json prints it.
type finding struct{ Stage, Check, Thing, State, Found, Next string }

type examined struct {
	File, Sluice, Result string
	Seconds              float64
	Counts               map[string]int
	Findings             []finding
}

// findings are the findings of a check.
func (e *examined) findings(check string) (list []finding) {
	for _, f := range e.Findings {
		if f.Check == check {
			list = append(list, f)
		}
	}
	return list
}

// Exit codes, and what is printed where: findings on standard output, an error of one line on the
// other.
func TestCheckConnect(t *testing.T) {
	t.Parallel()
	_, connection := serve(t, 2)
	database := databases["sqlite"](t)
	invalid := changed(t, "partitions:", "partition:")
	for _, c := range []struct {
		name      string
		env, args []string
		code      int
		out, errs string // parts; empty: nothing at all
	}{
		{"nothing failed", environment(connection, database), []string{example(t)}, 0, "ok         source: hub flights answers: it has 2 partitions\n", ""},
		{"by --config", environment(connection, database), []string{"--config", example(t)}, 0, ": valid: hub flights, consumer group ", ""},
		{"a warning", environment(connection, database, "PARTITIONS=3"), []string{example(t)}, 0, "warning    source: hub flights has 2 partitions, and the file takes 3\n           → set partitions to 2 or less", ""},
		{"a failed check", environment(connection, "sqlite:/nowhere/flights.db"), []string{example(t)}, 1, "failed     rights: ", "sluice: " + example(t) + ": failed checks: "},
		{"a variable is missing", []string{"DATABASE_URL=" + database}, []string{example(t)}, 1, "failed     variables: ", "failed checks: 1\n"},
		{"a file that is not valid", environment(connection, database), []string{invalid}, 1, "unknown key, did you mean partitions", "failed checks: "},
		{"no such file", nil, []string{"nowhere.yaml"}, 1, "failed     file: nowhere.yaml: cannot be read: no such file", "nowhere.yaml: failed checks: 1\n"},
		{"no file named", nil, nil, 2, "", "sluice check: name the pipeline: pass PIPELINE.yaml or --config PIPELINE.yaml"},
		{"two files", nil, []string{"a.yaml", "b.yaml"}, 2, "", "accepts at most 1 arg(s), received 2"},
		{"unknown flag", nil, []string{"--jsn", example(t)}, 2, "", "unknown flag: --jsn; see sluice check --help"},
		{"unknown stage", environment(connection, database), []string{"--stage", "cleen", example(t)}, 2, "", "cleen"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			code, out, errs := invoke(t, "", c.env, append([]string{"check", "--connect"}, c.args...)...)
			if code != c.code || !strings.Contains(out, c.out) || !strings.Contains(errs, c.errs) || (c.out == "") != (out == "") || (c.errs == "") != (errs == "") || strings.Count(errs, "\n") > 1 {
				t.Errorf("exit code %d: %s%s", code, out, errs)
			}
		})
	}
}

func TestCheckJSON(t *testing.T) {
	t.Parallel()
	_, connection := serve(t, 2)
	for _, c := range []struct {
		database, result string
		code             int
	}{{databases["sqlite"](t), "ok", 0}, {"sqlite:/nowhere/flights.db", "failed", 1}} {
		code, out, errs := invoke(t, "", environment(connection, c.database), "check", "--connect", "--json", example(t))
		var got examined
		decode(t, out, &got)
		worst := "ok"
		for _, f := range got.Findings {
			if f.State == "failed" {
				worst = f.State
				if f.Next == "" {
					t.Errorf("no next step: %+v", f)
				}
			}
		}
		if code != c.code || got.Result != c.result || worst != c.result || got.File != example(t) || got.Sluice == "" || got.Seconds <= 0 || len(got.Findings) < 4 || (errs == "") != (code == 0) {
			t.Errorf("exit code %d: %+v %s", code, got, errs)
		}
	}
}

// silent is the address of a server that takes connections and never answers. Nobody accepts them:
// the system does.
func silent(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}

// The command ends if nothing answers: hub or brokers, database or blobs, target and claim check,
// in each stage of the file. It does so within 15 seconds, and here a machine that is slow adds to
// them; TestCheckThatDoesNotReturn of internal/check adds up what the command itself waits for.
func TestCheckAmongSilentServers(t *testing.T) {
	t.Parallel()
	at := silent(t)
	hub := "Endpoint=sb://" + at + ";SharedAccessKeyName=app;SharedAccessKey=" + secret + ";UseDevelopmentEmulator=true"
	storage := "DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;AccountKey=" + secret + ";BlobEndpoint=http://" + at + "/devstoreaccount1;"
	env := []string{"HUB=" + hub, "STORAGE=" + storage, "KEY=" + secret, "AT=" + at}
	for name, text := range map[string]string{
		"postgres": `source: {eventhub: {connection: "${HUB}", hub: flights}}
partitions: all
database: postgres://app:${KEY}@${AT}/flights
target: {insert: {table: flights, columns: {n: sequence}}}
`,
		"mysql": `source: {kafka: {brokers: "${AT}", topic: flights, group: g}}
partitions: all
database: mysql://app:${KEY}@${AT}/flights
target: {insert: {table: flights, columns: {n: sequence}}}
`,
		"sqlserver": `source: {kafka: {brokers: "${AT}", topic: flights, group: g, tls: true}}
partitions: all
database: sqlserver://app:${KEY}@${AT}?database=flights
target: {insert: {table: flights, columns: {n: sequence}}}
`,
		"cosmos": `source: {eventhub: {connection: "${HUB}", hub: flights}, claim_check: {container: bodies, connection: "${STORAGE}"}}
partitions: all
leases: {blob: {container: sluice, connection: "${STORAGE}"}}
target: {cosmos: {endpoint: "http://${AT}/", key: "${KEY}", database: db, container: docs, id: body.id, partition_key: body.key}}
`,
		"sends": `source: {eventhub: {connection: "${HUB}", hub: flights}}
partitions: all
leases: {blob: {container: sluice, connection: "${STORAGE}"}}
target: {servicebus: {connection: "${HUB}", queue: q}}
`,
		"http": `source: {eventhub: {connection: "${HUB}", hub: flights}}
partitions: all
leases: {sql: "postgres://app:${KEY}@${AT}/flights"}
target: {http: {url: "https://${AT}/"}}
`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "silent.yaml")
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			code, out, _ := invoke(t, "", env, "check", "--connect", "--json", path)
			var got examined
			decode(t, out, &got)
			if code != 1 || got.Result != "failed" || got.Seconds > 15+30 {
				t.Errorf("exit code %d after %.1f s: %+v", code, got.Seconds, got)
			}
			for _, f := range got.Findings {
				silence := strings.Contains(f.Found, "no answer") || strings.Contains(f.Found, "timeout")
				if f.State == "failed" && (!silence || f.Next == "") || strings.Contains(f.Found+f.Next, secret) {
					t.Errorf("finding %+v", f)
				}
			}
			for _, part := range []string{"source", "target"} {
				failed := slices.ContainsFunc(got.Findings, func(f finding) bool {
					return f.State == "failed" && (f.Check == part || part == "target" && f.Check == "database")
				})
				if !failed {
					t.Errorf("the %s did not fail: %+v", part, got.Findings)
				}
			}
		})
	}
}

// Without a pipeline file the addresses are checked, and with --connect whether they answer.
// Nothing is made.
func TestCheckWithoutPipeline(t *testing.T) {
	t.Parallel()
	down := "postgres://app:" + secret + "@127.0.0.1:1/flights"
	file, _ := autoscaler(t)
	for args, c := range map[string]struct {
		code int
		out  string
	}{
		"--store sqlite:f.db":                                 {0, "ok         address: SQLite f.db: valid"},
		"--store sqlite:f.db --connect":                       {0, "ok         rights: SQLite f.db: may create files in the database's directory"},
		"--store " + down:                                     {0, "ok         address: PostgreSQL 127.0.0.1:1/flights"},
		"--store " + down + " --connect":                      {1, "failed     reached: PostgreSQL 127.0.0.1:1/flights, as app: cannot be reached: "},
		"--autoscale " + file:                                 {0, "ok         file: " + file + ": valid"},
		"--autoscale " + file + " --connect":                  {0, "ok         rights: "},
		"--autoscale nowhere.yaml":                            {1, "failed     file: nowhere.yaml: cannot be read"},
		"--store " + down + " --write --yes --report=":        {1, "failed     reached: "},
		"--store sqlite:nowhere/f.db --write --yes --report=": {3, "undecided  rights: SQLite nowhere/f.db: may not create files"},
	} {
		dir := t.TempDir()
		code, out, errs := invoke(t, dir, nil, append([]string{"check"}, strings.Fields(args)...)...)
		if code != c.code || !strings.Contains(out, c.out) || strings.Contains(out+errs, secret) {
			t.Errorf("%s: exit code %d: %s%s", args, code, out, errs)
		}
		if list := names(t, dir); len(list) > 0 {
			t.Errorf("%s: files %v", args, list)
		}
	}
}

// Where a part of a pipeline fails, nothing is written.
func TestCheckStopsBeforeWriting(t *testing.T) {
	t.Parallel()
	_, connection := serve(t, 2)
	dir := t.TempDir()
	code, out, _ := invoke(t, dir, environment(connection, "sqlite:flights.db", "PARTITIONS=1"), "check", changed(t, "hub: flights", "hub: flihgts"), "--write", "--yes")
	if code != 1 || !strings.Contains(out, "failed     source: ") || strings.Contains(out, "db.atomic") || len(names(t, dir)) > 0 {
		t.Errorf("exit code %d, files %v: %s", code, names(t, dir), out)
	}
}
