package pipeline

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-go/sluice"
)

func TestIdentityQueryMistakes(t *testing.T) {
	const url = "url: ${TARGET_URL}"
	for _, c := range []struct{ audit, want string }{
		{"{query: SELECT 1}", "p.yaml:13:5: target.http.audit.database: is missing"},
		{"{database: 'sqlite:x.db'}", "p.yaml:13:5: target.http.audit.query: is missing"},
		{"{database: 'postgres://u:secret@h/d', query: SELECT 1}", "p.yaml:13:13: target.http.audit.database: holds a password: put it into an environment variable and write ${DATABASE_URL}, or postgres://user:${PASSWORD}@host/database"},
		{"{database: x.db, query: SELECT 1}", "p.yaml:13:13: target.http.audit.database: " + databaseForms},
		{"{database: 'sqlite:x.db', query: SELECT 1}", "p.yaml:13:38: target.http.audit.query: uses neither :partition nor :source: it must return the sequence numbers of one partition, such as SELECT sequence_number FROM flights WHERE hub_partition = :partition"},
		{"{database: 'sqlite:x.db', query: 'DELETE FROM x WHERE p = :partition'}", `p.yaml:13:38: target.http.audit.query: begins with "delete": write a SELECT`},
		{"{database: 'sqlite:x.db', query: 'SELECT 1 WHERE p = :part'}", "p.yaml:13:38: target.http.audit.query: :part: write :partition, :source, :namespace, :topic or :incarnation"},
		{"{database: 'sqlite:x.db', query: 'SELECT 1; SELECT 2'}", "p.yaml:13:38: target.http.audit.query: more than one statement: write one"},
		{"{database: 'sqlite:x.db', queries: SELECT 1}", "p.yaml:13:38: target.http.audit.queries: unknown key: known keys are database, query"},
	} {
		_, err := parseHTTP(url, url+"\n    audit: "+c.audit)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s:\ngot  %v\nwant %s", c.audit, err, c.want)
		}
	}
	statement := `source: {eventhub: {connection: "${EVENTHUB_CONNECTION_STRING}", hub: flights}}
partitions: all
database: sqlite:x.db
target:
  statement:
    sql: SELECT 1
    audit: {database: "sqlite:y.db", query: "SELECT n FROM x WHERE p = :partition"}
`
	_, err := Parse("p.yaml", []byte(statement), environment())
	if want := "p.yaml:7:13: target.statement.audit.database: unknown key"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// TestIdentities: a query returns the numbers of one partition in order, whatever order it has, and
// what is no number is refused.
func TestIdentities(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "r.db"), nil, 0o600); err != nil { // an empty database
		t.Fatal(err)
	}
	for _, c := range []struct{ query, want, err string }{
		{query: "SELECT n FROM (SELECT 10 AS n, '0' AS p UNION ALL SELECT 9, '0' UNION ALL SELECT 11, '1') AS x WHERE p = :partition -- of one", want: "[9 10]"},
		{query: "SELECT 7 AS n WHERE :source = '//ns/flights/i/0' AND :topic || :namespace || :incarnation || :partition = 'flightsnsi0'", want: "[7]"},
		{query: "SELECT '10' AS n WHERE :partition = '0'", want: "[]", err: `p.yaml:10:1: target: audit.query: returns "10", which is no whole number for the database and would not be sorted as one: write CAST(… AS BIGINT), AS INTEGER in SQLite, AS SIGNED in MySQL`},
		{query: "SELECT NULL AS n WHERE :partition = '0'", want: "[]", err: "audit.query: returns NULL, which is no whole number"},
		{query: "SELECT 1 AS n, 2 AS m WHERE :partition = '0'", want: "[]", err: "audit.query: returns 2 columns: it must return one, the sequence numbers"},
		{query: "SELECT n FROM nowhere WHERE p = :partition", want: "[]", err: "target: audit.query: "},
	} {
		p, err := parseHTTP("url: ${TARGET_URL}", fmt.Sprintf("url: ${TARGET_URL}\n    audit: {database: 'sqlite:%s/r.db', query: %q}", dir, c.query))
		if err != nil {
			t.Fatal(err)
		}
		db, list, err := p.Identities()
		if err != nil {
			t.Fatal(err)
		}
		numbers := []int64{}
		var failed error
		for n, err := range list(t.Context(), sluice.Topic{Group: sluice.Group{Namespace: "ns", Topic: "flights"}, Incarnation: "i"}, "0") {
			if failed = err; err != nil {
				break
			}
			numbers = append(numbers, n)
		}
		if fmt.Sprint(numbers) != c.want || c.err == "" && failed != nil || c.err != "" && (failed == nil || !strings.Contains(failed.Error(), c.err)) {
			t.Errorf("%s: %v, %v", c.query, numbers, failed)
		}
		db.Close()
	}
}
