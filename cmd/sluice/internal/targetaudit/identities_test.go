package targetaudit

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/sluice-go/sluice"
)

// send appends events n to m-1, in turn to both partitions.
func (w *world) send(n, m int) {
	for i := n; i < m; i++ {
		w.hub.Append(strconv.Itoa(i%2), &sluice.Event{Body: fmt.Appendf(nil, `{"n":%d}`, i)})
	}
}

const statementFile = `database: ${DATABASE_URL}
target:
  statement:
    sql: INSERT INTO done (p, s, n) VALUES (:p, :s, :n)
    parameters: {p: partition, s: sequence, n: {from: body.n, type: integer}}
`

// TestStatement: with a query for the events whose effect is there, what is missing is lost and
// what is there twice is duplicated; without, it cannot be decided.
func TestStatement(t *testing.T) {
	t.Parallel()
	for _, query := range []string{"", "    audit: {query: 'SELECT s FROM done WHERE p = :partition'}\n"} {
		w := newWorld(t, statementFile+query)
		exec(t, w.database, `CREATE TABLE done (p text, s integer, n integer)`)
		w.send(0, 100)
		w.hub.Append("1", &sluice.Event{Body: []byte(`{}`)}) // a dead letter
		w.run()
		w.send(100, 103)
		if query == "" {
			r := w.audit()
			w.says(r, "Checked 104 events: 0 lost, 0 duplicated, 0 written, 3 in flight, 1 dead letter, 100 not decidable (the checkpoint has passed it, and what the statement wrote does not show its event: target.statement.audit can name a query).")
			if !r.Undecided() {
				t.Error("it is decided")
			}
			continue
		}
		w.says(w.audit(), "Checked 104 events: 0 lost, 0 duplicated, 100 written, 3 in flight, 1 dead letter, 0 not decidable.")
		exec(t, w.database, `DELETE FROM done WHERE p = '0' AND s IN (7, 8, 30)`, `INSERT INTO done VALUES ('1', 3, 0), ('1', 50, 0), ('1', 60, 0)`)
		// 50 is the dead letter. 60 is after the checkpoint, as if it had come since.
		r := w.audit("partition 0: events 7 to 8 are lost", "partition 0: event 30 is lost", "partition 1: event 3 is duplicated", "partition 1: event 50 is duplicated")
		w.says(r, "Checked 104 events: 3 lost (partition 0: 7 to 8, 30), 2 duplicated (partition 1: 3, 50), 97 written, 3 in flight, 1 dead letter, 0 not decidable.")
	}
}

// receiver keeps the identities of the events in a table, as those in examples/http do.
func receiver(t *testing.T) (url, database string) {
	database = filepath.Join(t.TempDir(), "receiver.db")
	exec(t, database, `CREATE TABLE received (source TEXT, id TEXT, PRIMARY KEY (source, id)) WITHOUT ROWID`)
	var mu sync.Mutex
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var batch []struct{ Source, ID string }
		if err := json.NewDecoder(r.Body).Decode(&batch); err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, e := range batch {
			exec(t, database, fmt.Sprintf(`INSERT OR IGNORE INTO received VALUES ('%s', '%s')`, e.Source, e.ID))
		}
	}))
	t.Cleanup(srv.Close)
	return srv.URL, database
}

const httpFile = `leases: {sql: "${DATABASE_URL}"}
target:
  http:
    url: ${TARGET_URL}
`

// TestHTTP: as TestStatement, for a receiver that keeps identities.
func TestHTTP(t *testing.T) {
	t.Parallel()
	url, database := receiver(t)
	w := newWorld(t, httpFile+"    audit: {database: 'sqlite:"+database+"', query: SELECT CAST(id AS INTEGER) FROM received WHERE source = :source}\n", "TARGET_URL="+url)
	w.send(0, 40)
	w.run()
	w.send(40, 42)
	w.says(w.audit(), "Checked 42 events: 0 lost, 0 duplicated, 40 written, 2 in flight, 0 dead letters, 0 not decidable.")
	exec(t, database, `DELETE FROM received WHERE source LIKE '%/1' AND id IN ('9', '10')`)
	w.says(w.audit("partition 1: events 9 to 10 are lost"), "Checked 42 events: 2 lost (partition 1: 9 to 10), 0 duplicated, 38 written, 2 in flight, 0 dead letters, 0 not decidable.")

	w = newWorld(t, httpFile, "TARGET_URL="+url)
	w.send(0, 4)
	w.run()
	w.says(w.audit(), "Checked 4 events: 0 lost, 0 duplicated, 0 written, 0 in flight, 0 dead letters, 4 not decidable (the receiver has accepted it, and only its own database shows what it did: target.http.audit can name a query).")
}
