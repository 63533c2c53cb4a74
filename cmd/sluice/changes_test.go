package main_test

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"

	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/internal/proof/need"
)

// TestChangesByKeyUnderKills: two processes write the same changes by key to four tables, each
// under another rule, and are killed at random moments. Meanwhile checkpoints are set back, over
// deletes too, the tables get another column, and dead letters are retried in any order. At the end
// each table is the log folded by key, and only events that the table refused were dead letters: no
// deadlock made one. SLUICE_CHANGES_KILLS is how often a process is killed; 20 by default.
func TestChangesByKeyUnderKills(t *testing.T) {
	kills := 20
	if text := os.Getenv("SLUICE_CHANGES_KILLS"); text != "" {
		var err error
		if kills, err = strconv.Atoi(text); err != nil || kills < 4 {
			t.Fatalf("SLUICE_CHANGES_KILLS is %q", text)
		}
	}
	eachFastDatabase(t, func(t *testing.T, url string) {
		w := newChangesWorld(t, url, kills)
		for round := range kills {
			w.send(round)
			w.kill(round)
			if round%3 == 1 {
				w.setBack()
			}
			if round%4 == 2 {
				w.mendSome()
			}
		}
		for _, p := range w.running {
			p.kill()
		}
		w.expireLeases()
		w.catchUp()
		w.mendAll("versions")
		w.check()
		redriven := w.redriveOneByOne()
		w.check()
		t.Logf("%d events, %d kills of sluice run, %d checkpoints set back, %d dead letters retried one by one, %d kills of retries",
			w.log.n, kills, w.sets, redriven, w.retriesKilled)
	})
}

const (
	changePartitions = 3
	changeKeys       = 12 // of a partition alone
	sharedChangeKeys = 6  // of all partitions
)

// changeStages are the rules: the keys of insert, where the columns note and late come from, and
// the waits before further attempts at events that the table refuses. Under newer each event has
// the same columns, because what a row keeps of others depends on their order.
var changeStages = map[string]struct{ keys, note, late, later string }{
	"updated":  {"delete_when: {body.op: d}", "{from: body.note, type: text, required: false}", "late", "none"},
	"skipped":  {"on_conflict: skip\n        delete_when: {body.op: d}", "{from: body.note, type: text, required: false}", "late", "none"},
	"newest":   {"on_conflict: newer\n        version: n\n        delete_when: {body.op: d}", "", "mark", "none"},
	"versions": {"on_conflict: newer\n        version: n", "body.op", "mark", "[1s, 2s]"}, // deleted rows are marked, so that they keep their version
}

// changesFile writes the pipelines, with the column late or without it.
func changesFile(t *testing.T, url string, late bool) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("eventhub: {connection: '${EVENTHUB_CONNECTION_STRING}'}\npartitions: balanced\nassign: {every: 100ms, burst: 4}\ndatabase: ${DATABASE_URL}\n")
	if strings.HasPrefix(url, "sqlserver:") {
		b.WriteString("lease: {for: 15s, renew: 3s}\n")
	} else {
		b.WriteString("lease: {for: 3s, renew: 1s}\n")
	}
	b.WriteString("stages:\n")
	for name, stage := range changeStages {
		fmt.Fprintf(&b, `  %s:
    source:
      eventhub: {hub: changes, consumer_group: %[1]s}
      start: earliest
    dead_letters: {redrive_every: 200ms}
    retry: {attempts: 2, min: 10ms, later: %[2]s}
    target:
      insert:
        table: %[1]s
        evolve: true
        key: id
        %[3]s
        columns:
          id: {from: body.id, type: text}
          n: {from: body.n, type: bigint}
          code: {from: body.code, type: text}
`, name, stage.later, stage.keys)
		if stage.note != "" {
			fmt.Fprintf(&b, "          note: %s\n", stage.note)
		}
		if late {
			fmt.Fprintf(&b, "          late: {from: body.%s, type: bigint, required: false}\n", stage.late)
		}
	}
	path := filepath.Join(t.TempDir(), "changes.yaml")
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// changesWorld is a hub, a database with the tables, and two processes.
type changesWorld struct {
	slow     bool // SQL Server: commits take so long that most kills hit the same event
	t        *testing.T
	random   *rand.Rand
	env      []string
	db       *sql.DB
	leases   *sql.DB
	files    []string // without late and with it
	log      *changesLog
	producer *azeventhubs.ProducerClient

	running       [2]*process
	sets          int
	retriesKilled int
	mended        map[string]bool // tables without a row that is in the way
	redriven      map[string][]*rowChange
}

func newChangesWorld(t *testing.T, url string, rounds int) *changesWorld {
	t.Helper()
	hub := emulator.Hub{Name: "changes", Partitions: changePartitions}
	for name := range changeStages {
		hub.ConsumerGroups = append(hub.ConsumerGroups, name)
	}
	server, err := emulator.Start([]emulator.Hub{hub}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	w := &changesWorld{
		t: t, slow: strings.HasPrefix(url, "sqlserver:"), random: need.Rand(t), env: environment(server.ConnectionString(), url), db: openDatabase(t, url),
		files: []string{changesFile(t, url, false), changesFile(t, url, true)}, mended: map[string]bool{}, redriven: map[string][]*rowChange{},
	}
	if w.leases = w.db; strings.HasPrefix(url, "sqlite:") {
		w.leases = openDatabase(t, url+"-leases")
	}
	each := 40
	if strings.HasPrefix(url, "sqlserver:") {
		each = 8 // Babelfish takes seconds for each row that it refuses
	}
	w.log = newChangesLog(w.random, rounds, each)
	if w.producer, err = azeventhubs.NewProducerClientFromConnectionString(server.ConnectionString(), "changes", nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.producer.Close(context.Background()) })
	word := "varchar(40)"
	if strings.HasPrefix(url, "sqlserver:") {
		word = "nvarchar(40)"
	}
	for name := range changeStages {
		w.exec(strings.ReplaceAll("CREATE TABLE "+name+" (id WORD NOT NULL PRIMARY KEY, n bigint, code WORD NOT NULL UNIQUE, note WORD DEFAULT 'new')", "WORD", word))
		for list := range slices.Chunk(w.log.refused(), 200) {
			values := make([]string, len(list))
			for i, c := range list {
				values[i] = fmt.Sprintf("('in the way of %d', 0, '%s', NULL)", c.n, c.code)
			}
			w.exec("INSERT INTO " + name + " (id, n, code, note) VALUES " + strings.Join(values, ", "))
		}
	}
	for i := range w.running {
		w.running[i] = start(t, "", w.env, "run", w.files[0], "--log-level", "debug")
	}
	return w
}

// exec executes a statement, again if it was chosen to end a deadlock.
func (w *changesWorld) exec(text string) {
	w.t.Helper()
	await(w.t, "a statement to be executed", func() bool {
		_, err := w.db.ExecContext(w.t.Context(), text)
		if err != nil && !strings.Contains(strings.ToLower(err.Error()), "deadlock") {
			w.t.Fatalf("%.100s: %v", text, err)
		}
		return err == nil
	})
}

// send sends the events of a round.
func (w *changesWorld) send(round int) {
	w.t.Helper()
	for p := range changePartitions {
		id := fmt.Sprint(p)
		batch, err := w.producer.NewEventDataBatch(w.t.Context(), &azeventhubs.EventDataBatchOptions{PartitionID: &id})
		if err != nil {
			w.t.Fatal(err)
		}
		for _, c := range w.log.partitions[p][round*w.log.each : (round+1)*w.log.each] {
			if err := batch.AddEventData(&azeventhubs.EventData{Body: []byte(c.json())}, nil); err != nil {
				w.t.Fatal(err)
			}
		}
		if err := w.producer.SendEventDataBatch(w.t.Context(), batch, nil); err != nil {
			w.t.Fatal(err)
		}
	}
}

// suspicions counts the partitions whose next event is suspected of ending processes.
const suspicions = "SELECT count(*) FROM sluice_checkpoints WHERE claims > 3 OR trial_unreturned > 0"

// kill kills a process that has committed something, and starts it again.
func (w *changesWorld) kill(round int) {
	w.t.Helper()
	victim := w.random.IntN(2)
	await(w.t, "a process to be at work", func() bool {
		victim = 1 - victim
		select {
		case <-w.running[victim].done: // it could not start on a busy machine
			w.start(victim, round)
		default:
		}
		return strings.Contains(w.running[victim].err.String(), "msg=committed")
	})
	if !w.slow { // of an event that is good, further kills would make a dead letter
		await(w.t, "an end of suspicions", func() bool { return count(w.t, w.db, suspicions) == 0 })
	}
	<-time.NewTimer(time.Duration(w.random.Int64N(int64(150 * time.Millisecond)))).C
	if since := round - w.log.late; since == 0 || since == 1 {
		victim = since // both have the column from then on
	}
	w.running[victim].kill()
	w.expireLeases()
	w.start(victim, round)
}

// start starts a process, after half of the rounds with the file that has the column late.
func (w *changesWorld) start(i, round int) {
	w.t.Helper()
	file := w.files[0]
	if round >= w.log.late {
		file = w.files[1]
	}
	w.running[i] = start(w.t, "", w.env, "run", file, "--log-level", "debug")
}

// expireLeases has all leases expire, also those of the process that lives, as after a jump of the
// database's clock.
func (w *changesWorld) expireLeases() {
	w.t.Helper()
	if _, err := w.leases.ExecContext(w.t.Context(), "UPDATE sluice_leases SET expires_at = renewed_at WHERE expires_at > renewed_at"); err != nil {
		w.t.Fatalf("expire leases: %v", err)
	}
}

// setBack has some of a partition's events delivered again.
func (w *changesWorld) setBack() {
	w.t.Helper()
	stage, partition := w.anyStage(), fmt.Sprint(w.random.IntN(changePartitions))
	var list []checkpoint
	decode(w.t, must(w.t, "", w.env, "checkpoints", "list", "--json", "--config", w.files[1], "--stage", stage), &list)
	for _, c := range list {
		if c.Partition != partition || c.Position == nil || *c.Position < 0 {
			continue
		}
		back := min(*c.Position, w.random.Int64N(300))
		must(w.t, "", w.env, "checkpoints", "set", "--config", w.files[1], "--stage", stage, "--partition", partition, "--force", "--to", fmt.Sprint("sequence ", *c.Position-back))
		w.sets++
	}
}

func (w *changesWorld) anyStage() string {
	return []string{"newest", "skipped", "updated", "versions"}[w.random.IntN(len(changeStages))]
}

// mendSome removes some of what is in the way of the events of table versions, and has dead letters
// retried in any order.
func (w *changesWorld) mendSome() {
	w.t.Helper()
	w.exec(fmt.Sprintf("DELETE FROM versions WHERE n = 0 AND id LIKE '%%%d'", w.random.IntN(10)))
	letters := w.letters("versions")
	w.random.Shuffle(len(letters), func(i, j int) { letters[i], letters[j] = letters[j], letters[i] })
	if letters = letters[:len(letters)/2]; len(letters) == 0 {
		return
	}
	args := []string{"deadletters", "retry", "--config", w.files[1], "--stage", "versions", "--no-wait"}
	for _, l := range letters {
		args = append(args, fmt.Sprint(l.ID))
	}
	// One that was replaced or applied meanwhile is no longer there.
	if code, out, errs := invoke(w.t, "", w.env, args...); code != 0 && !strings.Contains(errs, ": not found") {
		w.t.Fatalf("retry: exit code %d: %s%s", code, out, errs)
	}
}

// mendAll removes all that is in the way in a table, and retries what it had refused.
func (w *changesWorld) mendAll(table string) {
	w.t.Helper()
	w.exec("DELETE FROM " + table + " WHERE n = 0")
	w.mended[table] = true
	invoke(w.t, "", w.env, "deadletters", "retry", "--config", w.files[1], "--stage", table, "--all") // some fail again for ever
}

// catchUp has the rest of the log delivered.
func (w *changesWorld) catchUp() {
	w.t.Helper()
	last := changedFile(w.t, w.files[1], "partitions: balanced", "partitions: all")
	must(w.t, "", w.env, "run", last, "--until-caught-up", "--log-level", "error")
}

func (w *changesWorld) letters(stage string) []letter {
	w.t.Helper()
	list, _ := deadLetters(w.t, w.env, w.files[1], "--stage", stage, "--all")
	return list
}

// eventOf is the event of a dead letter.
func (w *changesWorld) eventOf(l letter) *rowChange {
	p, err := strconv.Atoi(l.Partition)
	if err != nil {
		w.t.Fatal(err)
	}
	return w.log.partitions[p][l.Sequence]
}

// redriveOneByOne removes what is in the way in the other tables, and retries dead letters one
// after the other, in random order. The command is killed now and then.
func (w *changesWorld) redriveOneByOne() (n int) {
	w.t.Helper()
	for _, stage := range []string{"updated", "skipped", "newest"} {
		w.exec("DELETE FROM " + stage + " WHERE n = 0")
		w.mended[stage] = true
		letters := slices.DeleteFunc(w.letters(stage), func(l letter) bool { return !w.eventOf(l).refused || w.eventOf(l).shared })
		w.random.Shuffle(len(letters), func(i, j int) { letters[i], letters[j] = letters[j], letters[i] })
		for _, l := range letters[:min(len(letters), 8)] {
			args := []string{"deadletters", "retry", "--config", w.files[1], "--stage", stage, fmt.Sprint(l.ID)}
			if w.random.IntN(2) == 0 {
				retry := start(w.t, "", w.env, args...)
				<-time.NewTimer(time.Duration(w.random.Int64N(int64(300 * time.Millisecond)))).C
				retry.kill()
				w.retriesKilled++
				w.expireLeases()
			}
			await(w.t, "a dead letter to be applied", func() bool { // what the killed command has begun may end late
				code, _, _ := invoke(w.t, "", w.env, args...)
				return code == 0 || !slices.ContainsFunc(w.letters(stage), func(left letter) bool { return left.ID == l.ID })
			})
			w.redriven[stage] = append(w.redriven[stage], w.eventOf(l))
			n++
		}
	}
	return n
}

// check compares the tables with the log.
func (w *changesWorld) check() {
	w.t.Helper()
	need.Verdict(w.t)
	for stage := range changeStages {
		suspects := w.checkLetters(stage)
		rows := w.rows(stage)
		inTheWay := 0
		for id := range rows {
			if strings.HasPrefix(id, "in the way") {
				if rows[id].n != 0 || rows[id].note != "NULL" {
					w.t.Errorf("%s: row %s has changed: %v", stage, id, rows[id])
				}
				inTheWay++
				delete(rows, id)
			}
		}
		if all := len(w.log.refused()); inTheWay != all && !w.mended[stage] {
			w.t.Errorf("%s: %d of %d rows in the way are left", stage, inTheWay, all)
		}
		want := w.log.fold(stage)
		for _, c := range w.redriven[stage] {
			want.apply(stage, c)
		}
		for id := range suspects {
			delete(rows, id)
			delete(want, id)
		}
		for i := range sharedChangeKeys {
			id := sharedID(i)
			if suspects[id] {
				continue
			}
			row := rows[id]
			switch {
			case stage == "versions": // has them all
				continue
			case row == nil && !w.log.mayBeGone(stage, id):
				w.t.Errorf("%s: there is no row %s", stage, id)
			case row != nil:
				if why := w.log.sharedRow(stage, id, row); why != "" {
					w.t.Errorf("%s: row %s is %v: %s", stage, id, row, why)
				}
			}
			delete(rows, id)
		}
		for id, row := range want {
			if rows[id] == nil || *rows[id] != *row {
				w.t.Errorf("%s: row %s is %v, want %v", stage, id, rows[id], row)
			}
			delete(rows, id)
		}
		for id, row := range rows {
			w.t.Errorf("%s: row %s is %v, want none", stage, id, row)
		}
	}
}

// checkLetters: an event is a dead letter only if it cannot be mapped, the table refuses it, or the
// process was killed three times with it. The keys of the last ones are returned: what their rows
// have depends on what was delivered again.
func (w *changesWorld) checkLetters(stage string) (suspects map[string]bool) {
	w.t.Helper()
	suspects = map[string]bool{}
	dead := map[*rowChange]bool{}
	for _, l := range w.letters(stage) {
		c := w.eventOf(l)
		dead[c] = true
		if w.slow && strings.Contains(l.Error, "the process ended 3 times") && stage != "versions" {
			suspects[c.id] = true
			continue
		}
		if !c.torn && (!c.refused || stage == "versions" && w.mended[stage]) {
			w.t.Errorf("%s: event %d of partition %s is a dead letter: %s", stage, l.Sequence, l.Partition, l.Error)
		}
	}
	for _, list := range w.log.partitions {
		for i, c := range list {
			if c.torn && !dead[c] {
				w.t.Errorf("%s: event %d, %s, is no dead letter", stage, i, c.json())
			}
		}
	}
	return suspects
}

// rows reads a table.
func (w *changesWorld) rows(table string) foldedRows {
	w.t.Helper()
	found, err := w.db.QueryContext(w.t.Context(), "SELECT id, n, code, note, late FROM "+table)
	if err != nil {
		w.t.Fatal(err)
	}
	defer found.Close()
	list := foldedRows{}
	for found.Next() {
		var id string
		var row foldedRow
		var note sql.NullString
		var late sql.NullInt64
		if err := found.Scan(&id, &row.n, &row.code, &note, &late); err != nil {
			w.t.Fatal(err)
		}
		if row.note = note.String; !note.Valid {
			row.note = "NULL"
		}
		row.late = late.Int64
		list[id] = &row
	}
	if err := found.Err(); err != nil {
		w.t.Fatal(err)
	}
	return list
}
