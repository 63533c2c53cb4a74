package main_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
)

// publishedTable makes the table of the published consumer, as that makes it in SQL Server.
func publishedTable(url string) string {
	offset, clustered := publishedOffset(url), ""
	if strings.HasPrefix(url, "sqlserver:") {
		clustered = "CLUSTERED "
	}
	return `CREATE TABLE EventHubCheckpoint (
  Topic varchar(100) NOT NULL,
  PartitionID varchar(100) NOT NULL,
  SequenceNumber bigint NOT NULL,
  ` + offset + ` varchar(20) NOT NULL,
  CONSTRAINT PK_EventHubCheckpoint PRIMARY KEY ` + clustered + `(Topic, PartitionID)
)`
}

// publishedOffset is the name of the table's column Offset, which is a reserved word in PostgreSQL.
func publishedOffset(url string) string {
	switch {
	case strings.HasPrefix(url, "postgres"):
		return `"Offset"`
	case strings.HasPrefix(url, "mariadb"):
		return "`Offset`"
	}
	return "Offset"
}

// nth is the nth event of a partition, as a consumer with the official client receives it.
func nth(t *testing.T, connection, partition string, n int) *azeventhubs.ReceivedEventData {
	t.Helper()
	client, err := azeventhubs.NewConsumerClientFromConnectionString(connection, "flights", azeventhubs.DefaultConsumerGroup, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close(context.Background())
	earliest := true
	p, err := client.NewPartitionClient(partition, &azeventhubs.PartitionClientOptions{StartPosition: azeventhubs.StartPosition{Earliest: &earliest}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close(context.Background())
	var event *azeventhubs.ReceivedEventData
	for n > 0 {
		events, err := p.ReceiveEvents(t.Context(), n, nil)
		if err != nil {
			t.Fatal(err)
		}
		n -= len(events)
		event = events[len(events)-1]
	}
	return event
}

// TestTableIsImported: the checkpoints that the published consumer keeps in its database are taken
// over, and its table stays as it is.
func TestTableIsImported(t *testing.T) {
	eachFastDatabase(t, func(t *testing.T, url string) {
		_, connection := serve(t, 3)
		env := environment(connection, url)
		config := quick(t, url)
		db := openDatabase(t, url)
		must(t, "", env, "send", "--hub", "flights", writeLines(t, flights20k(t)[:300]))
		execute := func(statement string) {
			t.Helper()
			if _, err := db.ExecContext(t.Context(), statement); err != nil {
				t.Fatalf("%s: %v", statement, err)
			}
		}
		take := func(more ...string) (int, string, string) {
			return invoke(t, "", env, append([]string{"checkpoints", "import", "--from-table", "env:DATABASE_URL", "--config", config}, more...)...)
		}

		execute("CREATE TABLE other (n int)") // SQLite makes the file
		if code, _, errs := take(); code != 1 || !strings.Contains(errs, "read checkpoints of another consumer: table EventHubCheckpoint: ") || !strings.Contains(errs, "--table") || strings.Count(errs, "\n") != 1 {
			t.Errorf("without the table: exit code %d, %s", code, errs)
		}
		execute(publishedTable(url))
		const stored = "SELECT count(*) FROM EventHubCheckpoint WHERE Topic = 'flights' AND SequenceNumber = 59 OR Topic = 'trains' OR SequenceNumber = 0"
		for partition, n := range map[string]int{"0": 60, "1": 60, "2": 0} {
			sequence, offset := int64(0), "-1" // the row of a partition of which nothing was processed
			if n > 0 {
				event := nth(t, connection, partition, n)
				sequence, offset = event.SequenceNumber, event.Offset
			}
			execute(fmt.Sprintf("INSERT INTO EventHubCheckpoint VALUES ('flights', '%s', %d, '%s')", partition, sequence, offset))
		}
		execute("INSERT INTO EventHubCheckpoint VALUES ('trains', '0', 7, '700')")

		if code, _, errs := take("--topic", "ships"); code != 1 || !strings.Contains(errs, "the table EventHubCheckpoint has no checkpoints of ships; it has checkpoints of ") || strings.Count(errs, "\n") != 1 {
			t.Errorf("of another topic: exit code %d, %s", code, errs)
		}
		if code, out, errs := take("--dry-run"); code != 0 || !strings.Contains(out, "2 checkpoints would be set") || !strings.Contains(out, "no checkpoint was found for partition 2") || strings.Contains(out, "BLOB") {
			t.Errorf("dry run: exit code %d, %s%s", code, out, errs)
		}
		if c := checkpoints(t, env, config); c[0].Position != nil {
			t.Errorf("a dry run has set %+v", c[0])
		}
		if code, out, errs := take(); code != 0 || !strings.Contains(out, "2 checkpoints set\n") {
			t.Fatalf("exit code %d, %s%s", code, out, errs)
		}
		for _, c := range checkpoints(t, env, config)[:2] {
			if *c.Position != 59 || *c.Lag != 40 {
				t.Errorf("partition %s is at %d, %d to go; want 59, 40", c.Partition, *c.Position, *c.Lag)
			}
		}
		must(t, "", env, "run", config, "--until-caught-up")
		if n, twice := count(t, db, countRows), count(t, db, countRows+" WHERE sequence_number < 60 AND hub_partition <> '2'"); n != 180 || twice != 0 {
			t.Errorf("%d rows, %d of events that were done before; want 180, 0", n, twice)
		}
		if n := count(t, db, stored); n != 4 {
			t.Errorf("%d rows of the other consumer are as they were, want 4", n)
		}

		out := must(t, "", env, "audit", "hub", "--config", config)
		if want := "Nothing lost, nothing duplicated: 300 events, 120 before the beginning, 180 written, 0 dead letters, 0 waiting."; !strings.Contains(out, want) || !strings.Contains(out, "60 import") {
			t.Errorf("the audit after the import: %s", out)
		}
		execute("DELETE FROM flights WHERE hub_partition = '0' AND sequence_number < 70")
		if code, out, errs := invoke(t, "", env, "audit", "hub", "--config", config); code != 1 || !strings.Contains(out, "partition 0: events 60 to 69 are lost") {
			t.Errorf("the audit of a loss after the import: exit code %d, %s%s", code, out, errs)
		}

		if code, _, errs := take(); code != 1 || strings.Count(errs, "has a checkpoint already, at 99") != 2 {
			t.Errorf("a second time: exit code %d, %s", code, errs)
		}
		var moved []map[string]any
		code, out, errs := take("--force", "--json")
		if code != 0 {
			t.Fatalf("by force: exit code %d, %s", code, errs)
		}
		decode(t, out, &moved)
		if m := moved[1]; len(moved) != 2 || m["partition"] != "1" || m["from"] != 99.0 || m["to"] != 59.0 || m["sequence"] != 59.0 || m["offset"] == "" || m["blob"] != nil {
			t.Errorf("moved %+v", moved)
		}
	})
}

// What is wrong is said in one line, without secrets.
func TestTableImportMistakes(t *testing.T) {
	t.Parallel()
	_, connection := serve(t, 1)
	url := databases["sqlite"](t)
	if err := os.WriteFile(strings.TrimPrefix(url, "sqlite:"), nil, 0o600); err != nil { // an empty database
		t.Fatal(err)
	}
	env := environment(connection, url)
	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"neither":            {nil, 2, "--from-blob CONTAINER-URL or --from-table DATABASE-URL"},
		"both":               {[]string{"--from-table", "sqlite:x.db", "--from-blob", "c"}, 2, "--from-blob CONTAINER-URL or --from-table DATABASE-URL"},
		"a prefix":           {[]string{"--from-table", "sqlite:x.db", "--prefix", "x/"}, 2, "--prefix is for --from-blob"},
		"no database":        {[]string{"--from-table", "oracle://u:secret@x/y"}, 2, "--from-table: write sqlite:PATH"},
		"no variable":        {[]string{"--from-table", "env:NOT_SET"}, 2, "the environment variable NOT_SET is not set"},
		"nobody there":       {[]string{"--from-table", "sqlserver://u:secret@127.0.0.1:1?database=d"}, 1, "connect"},
		"no PostgreSQL":      {[]string{"--from-table", "postgres://u:secret@localhost:1/d"}, 1, "connect to PostgreSQL at localhost:1, database d, as u: connection refused"},
		"no file":            {[]string{"--from-table", "sqlite:missing.db"}, 1, "--from-table: open missing.db: no such file or directory: correct the path"},
		"a table of blobs":   {[]string{"--from-blob", "c", "--table", "x"}, 2, "--table and --topic are for --from-table"},
		"a topic of blobs":   {[]string{"--from-blob", "c", "--topic", "x"}, 2, "--table and --topic are for --from-table"},
		"no name of a table": {[]string{"--from-table", "env:DATABASE_URL", "--table", "x; y"}, 1, "is not the name of a table"},
	} {
		code, _, errs := invoke(t, "", env, append([]string{"checkpoints", "import", "--config", quick(t, url)}, c.args...)...)
		if code != c.code || !strings.Contains(errs, c.says) || strings.Count(errs, "\n") != 1 || strings.Contains(errs, "secret") {
			t.Errorf("%s: exit code %d, %s", name, code, errs)
		}
	}
}
