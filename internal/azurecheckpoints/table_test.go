package azurecheckpoints

import (
	"database/sql"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	_ "modernc.org/sqlite"
)

func TestReadTable(t *testing.T) {
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "checkpoints.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, statement := range []string{
		`CREATE TABLE EventHubCheckpoint (Topic varchar(100) NOT NULL, PartitionID varchar(100) NOT NULL, SequenceNumber bigint NOT NULL, Offset varchar(20) NOT NULL,
			CONSTRAINT PK_EventHubCheckpoint PRIMARY KEY (Topic, PartitionID))`,
		`INSERT INTO EventHubCheckpoint VALUES ('flights', '10', 41, '4294967296'), ('Flights', '9', 0, '0'), ('flights', '1', 0, '-1'), ('flights', '2', 0, ''),
			('flights', '3', 7, ''), ('trains', '0', 3, '100'), ('trains', '1', 3, '100'), ('buses', '0', 1, '8')`,
		`CREATE TABLE more (updated_at text, OFFSET text, topic text, partitionid integer, sequencenumber bigint)`,
		`INSERT INTO more VALUES ('2026', '77', 'flights', 5, NULL)`,
		// As SQL Server and PostgreSQL return columns of type char(n).
		`CREATE TABLE padded (Topic text, PartitionID text, SequenceNumber bigint, Offset text)`,
		`INSERT INTO padded VALUES ('flights   ', '5   ', 7, '77      '), ('flights   ', '6   ', 0, '-1      '), ('trains    ', '0   ', 1, '8       ')`,
		`CREATE TABLE twice (Topic text, PartitionID text, SequenceNumber bigint, Offset text)`,
		`INSERT INTO twice VALUES ('flights', '0', 1, '8'), ('FLIGHTS', '0', 2, '16')`,
		`CREATE TABLE other (Topic text, PartitionID text)`,
		`CREATE TABLE letters (Topic text, PartitionID text, SequenceNumber bigint, Offset text, FailedAt text, Error text)`,
		`INSERT INTO letters VALUES ('flights', '0', 1, '8', '', '')`,
		`CREATE TABLE spelled (Topic text, PartitionID text, SequenceNumber text, Offset text)`,
		`INSERT INTO spelled VALUES ('flights', '0', '1', '8'), ('flights', '4', 'seven', '8')`,
	} {
		if _, err := db.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	found, err := ReadTable(t.Context(), db, PublishedTable, "flights")
	want := []Checkpoint{{Partition: "3", Sequence: 7}, {Partition: "9", Sequence: 0, Offset: "0"}, {Partition: "10", Sequence: 41, Offset: "4294967296"}}
	if err != nil || !slices.Equal(found.Checkpoints, want) || !slices.Equal(found.Others, []string{"trains", "buses"}) {
		t.Errorf("found %+v, %v", found, err)
	}
	found, err = ReadTable(t.Context(), db, "main.more", "flights")
	if err != nil || !slices.Equal(found.Checkpoints, []Checkpoint{{Partition: "5", Sequence: -1, Offset: "77"}}) {
		t.Errorf("found %+v, %v", found, err)
	}
	found, err = ReadTable(t.Context(), db, "padded", "flights")
	if err != nil || !slices.Equal(found.Checkpoints, []Checkpoint{{Partition: "5", Sequence: 7, Offset: "77"}}) || !slices.Equal(found.Others, []string{"trains"}) {
		t.Errorf("found %+v, %v", found, err)
	}
	for table, says := range map[string]string{
		"twice":                        "several rows of partition 0",
		"other":                        "table other does not have the columns Topic, PartitionID, SequenceNumber and Offset: name another with --table",
		"missing":                      "no such table",
		"letters":                      "table letters is one of dead letters: name that of the checkpoints with --table",
		"spelled":                      `row 2, partition "4": `,
		"more; DROP TABLE more":        "is not the name of a table",
		"more WHERE topic = 'flights'": "is not the name of a table",
	} {
		if _, err := ReadTable(t.Context(), db, table, "flights"); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", table, err)
		}
	}
}
