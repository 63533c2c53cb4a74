package main_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-go/sluice/cmd/sluice/internal/history"
	"github.com/sluice-go/sluice/internal/proof/need"
)

// TestThreeConsumersOfWhichOneIsKilled runs real processes: a hub, three
// consumers, a producer, and a kill -9 in the middle.
func TestThreeConsumersOfWhichOneIsKilled(t *testing.T) {
	eachFastDatabase(t, func(t *testing.T, url string) {
		server := start(t, "", nil, "emulator", "serve", "--listen", "127.0.0.1:0", "--data", t.TempDir(), "--hub", "flights=4")
		connection := connectionOf(t, server)
		env := environment(connection, url, "PARTITIONS=2")
		config := quick(t, url)
		db := openDatabase(t, url)

		// One begins alone, as the table must be there for the count.
		consumers := []*process{start(t, "", env, "run", config)}
		must(t, "", env, "check", "--connect", config)
		for range 2 {
			consumers = append(consumers, start(t, "", env, "run", config))
		}
		sending := start(t, "", env, "send", "--hub", "flights", "--rate", "25000", flights200k(t))
		await(t, "all partitions to be owned", func() bool {
			list := checkpoints(t, env, config)
			return len(list) == 4 && !slices.ContainsFunc(list, func(c checkpoint) bool { return c.Owner == "" })
		})
		await(t, "a part of the flights", func() bool { return count(t, db, countRows) > 20_000 })
		victim := slices.IndexFunc(consumers, func(p *process) bool {
			owner := fmt.Sprintf("-%d-", p.cmd.Process.Pid)
			return slices.ContainsFunc(checkpoints(t, env, config), func(c checkpoint) bool { return strings.Contains(c.Owner, owner) })
		})
		consumers[victim].kill()
		consumers = slices.Delete(consumers, victim, victim+1)

		if code := sending.wait(); code != 0 || !strings.Contains(sending.out.String(), "200000 records acknowledged") {
			t.Fatalf("send: exit code %d: %s", code, sending.out.String())
		}
		// It owns nothing itself if the others own all.
		must(t, "", env, "run", config, "--until-caught-up", "--within", "2m")
		for _, c := range consumers {
			c.stop()
		}
		exactlyOnce(t, lookAt(t, connection).events(), rows(t, db))
		if n := count(t, db, countRows); n != 200_000 {
			need.Verdict(t)
			t.Errorf("%d rows", n)
		}
		server.stop()
	})
}

// connectionOf waits for the emulator's ready line.
func connectionOf(t *testing.T, server *process) string {
	t.Helper()
	await(t, "the emulator", func() bool { return strings.HasSuffix(server.out.String(), "\n") })
	line, _, _ := strings.Cut(server.out.String(), "\n")
	connection, ok := strings.CutPrefix(line, "ready ")
	if !ok || strings.Count(server.out.String(), "\n") != 1 {
		t.Fatalf("the emulator printed %q", server.out.String())
	}
	return connection
}

func TestTheExampleAsItIs(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		_, connection := serve(t, 3)
		env := environment(connection, url)
		records := flights20k(t)[:3000]
		must(t, "", env, "send", "--hub", "flights", "--key-field", "origin", writeLines(t, records))
		must(t, "", env, "run", example(t), "--until-caught-up")
		db := openDatabase(t, url)
		exactlyOnce(t, lookAt(t, connection).events(), rows(t, db))
		var delay, distance int64
		for _, r := range records {
			var f struct{ Delay, Distance int64 }
			decode(t, string(r), &f)
			delay, distance = delay+f.Delay, distance+f.Distance
		}
		if d, m := sum(t, db, "delay"), sum(t, db, "distance"); d != delay || m != distance {
			need.Verdict(t)
			t.Errorf("delays %d, distances %d; want %d, %d", d, m, delay, distance)
		}
		if n := count(t, db, "SELECT count(*) FROM flights WHERE origin = 'LAS' AND destination = 'OAK' AND date >= '2001-01-01 01:24:00' AND date < '2001-01-01 01:25:00' AND delay = -5"); n != 1 {
			t.Errorf("%d rows of one flight", n)
		}
	})
}

func TestUntilCaughtUpFailsInTime(t *testing.T) {
	t.Parallel()
	_, connection := serve(t, 2)
	env := environment(connection, databases["sqlite"](t), "PARTITIONS=1")
	// Keys see to it that both partitions have events.
	must(t, "", env, "send", "--hub", "flights", "--key-field", "origin", writeLines(t, flights20k(t)[:100]))
	began := time.Now()
	code, _, errs := invoke(t, "", env, "run", example(t), "--until-caught-up", "--within", "10s")
	if code != 1 || !strings.Contains(errs, "sluice: not caught up within 10s: partition ") || !strings.Contains(errs, " not started, of ") {
		t.Errorf("exit code %d: %s", code, errs)
	}
	if took := time.Since(began); took < 10*time.Second || took > time.Minute {
		t.Errorf("took %v", took)
	}
}

// A job that is taken off its machine has not done what it was for.
func TestUntilCaughtUpInterruptedFails(t *testing.T) {
	t.Parallel()
	_, connection := serve(t, 2)
	env := environment(connection, databases["sqlite"](t), "PARTITIONS=1")
	must(t, "", env, "send", "--hub", "flights", "--key-field", "origin", writeLines(t, flights20k(t)[:100]))
	p := start(t, "", env, "run", example(t), "--until-caught-up")
	await(t, "a partition", func() bool { return strings.Contains(p.err.String(), "reading started") })
	p.signal(os.Interrupt)
	if code := p.wait(); code != 1 || !strings.HasSuffix(p.err.String(), "sluice: interrupted before it had caught up\n") {
		t.Errorf("exit code %d: %s", code, p.err.String())
	}
}

func TestUntilCaughtUpFailsSoonWhereAPersonMustAct(t *testing.T) {
	t.Parallel()
	srv, connection := serve(t, 1)
	env := environment(connection, databases["sqlite"](t))
	records := writeLines(t, flights20k(t)[:100])
	must(t, "", env, "send", "--hub", "flights", records)
	must(t, "", env, "run", example(t), "--until-caught-up")

	expect := func(want string) {
		t.Helper()
		began := time.Now()
		code, _, errs := invoke(t, "", env, "run", example(t), "--until-caught-up", "--within", "1m")
		if code != 1 || !strings.Contains(errs, want) || time.Since(began) > 30*time.Second {
			t.Errorf("exit code %d after %v: %s", code, time.Since(began), errs)
		}
	}
	must(t, "", env, "send", "--hub", "flights", records)
	if err := srv.Trim("flights", "0", 150); err != nil {
		t.Fatal(err)
	}
	expect("partition 0: retention removed events 100 to 149 before they were read")
	must(t, "", env, "checkpoints", "set", "--config", example(t), "--all", "--to", "sequence 150")
	must(t, "", env, "run", example(t), "--until-caught-up")

	if err := srv.Recreate("flights"); err != nil {
		t.Fatal(err)
	}
	must(t, "", env, "send", "--hub", "flights", records)
	expect("sluice: partition 0: topic flights was recreated")
	must(t, "", env, "checkpoints", "set", "--config", example(t), "--all", "--to", "earliest")
	must(t, "", env, "run", example(t), "--until-caught-up")
}

func TestSignalsEndARunWellAndGiveLeasesBack(t *testing.T) {
	t.Parallel()
	_, connection := serve(t, 2)
	env := environment(connection, databases["sqlite"](t))
	must(t, "", env, "send", "--hub", "flights", writeLines(t, flights20k(t)[:1000]))
	for range 2 {
		p := start(t, "", env, "run", example(t))
		await(t, "both partitions to be owned", func() bool {
			list := checkpoints(t, env, example(t))
			return len(list) == 2 && list[0].Owner != "" && list[1].Owner != ""
		})
		p.stop()
		for _, c := range checkpoints(t, env, example(t)) {
			if c.Owner != "" {
				t.Errorf("partition %s is still owned by %s", c.Partition, c.Owner)
			}
		}
	}
}

func TestStopDoesNotWaitForEver(t *testing.T) {
	for name, c := range map[string]struct {
		flags   []string
		signals int
	}{
		"stop timeout":  {[]string{"--stop-timeout", "1s"}, 1},
		"second signal": {[]string{"--stop-timeout", "1h"}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := databases["sqlite"](t)
			_, connection := serve(t, 1)
			env := environment(connection, url)
			db := openDatabase(t, url)
			records := writeLines(t, flights20k(t)[:100])
			must(t, "", env, "send", "--hub", "flights", records)
			p := start(t, "", env, append([]string{"run", example(t), "--log-level", "debug"}, c.flags...)...)
			await(t, "the first rows", func() bool { return strings.Contains(p.err.String(), "msg=committed") })

			// Nobody can write while the test does.
			conn, err := db.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := conn.ExecContext(t.Context(), "BEGIN IMMEDIATE"); err != nil {
				t.Fatal(err)
			}
			must(t, "", env, "send", "--hub", "flights", records)
			await(t, "the second batch", func() bool { return strings.Count(p.err.String(), "msg=fetched") >= 2 })
			p.signal(syscall.SIGTERM)
			await(t, "the stop to begin", func() bool { return strings.Contains(p.err.String(), "msg=stopping") })
			if c.signals == 2 {
				p.signal(syscall.SIGTERM)
			}
			if code := p.wait(); code != 0 {
				t.Errorf("exit code %d: %s", code, p.err.String())
			}
			if _, err := conn.ExecContext(t.Context(), "ROLLBACK"); err != nil {
				t.Fatal(err)
			}
			must(t, "", env, "run", example(t), "--until-caught-up")
			exactlyOnce(t, lookAt(t, connection).events(), rows(t, db))
		})
	}
}

// A second signal cancels a batch that goes on for ten minutes: its endpoint does not answer.
func TestSecondSignalCancels(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 1)
	endpoint := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // else the server does not notice the end of the client
		if !bytes.Contains(body, []byte("AA-1")) {
			return // the check at the start has no events
		}
		select {
		case asked <- struct{}{}:
		default:
		}
		<-r.Context().Done()
	}))
	t.Cleanup(endpoint.Close) // after the end of the process
	_, connection := serve(t, 1)
	env := []string{"HUB=" + connection, "URL=" + endpoint.URL, "DB=" + databases["sqlite"](t)}
	config := filepath.Join(t.TempDir(), "http.yaml")
	text := `source: {eventhub: {connection: "${HUB}", hub: flights}}
partitions: all
leases: {sql: "${DB}"}
target: {http: {url: "${URL}", timeout: 10m}}
`
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	must(t, "", environment(connection, ""), "send", "--hub", "flights", writeLines(t, []string{`{"flight":"AA-1"}`}))
	p := start(t, "", env, "run", config, "--stop-timeout", "1h")
	select {
	case <-asked:
	case <-time.After(patience):
		t.Fatal("the endpoint has got no event")
	}
	p.signal(syscall.SIGTERM)
	await(t, "the stop to begin", func() bool { return strings.Contains(p.err.String(), "msg=stopping") })
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d: %s", code, p.err.String())
	}
}

func TestLogs(t *testing.T) {
	t.Parallel()
	_, connection := serve(t, 1)
	env := environment(connection, databases["sqlite"](t))
	must(t, "", env, "send", "--hub", "flights", writeLines(t, append(spoiled(1), sane)))
	code, out, errs := invoke(t, "", env, "run", example(t), "--until-caught-up", "--log-format", "json")
	if code != 0 || out != "" {
		t.Errorf("exit code %d, printed %q", code, out)
	}
	var said []string
	for line := range strings.Lines(errs) {
		var entry struct{ Level, Msg string }
		decode(t, line, &entry)
		said = append(said, entry.Level+" "+entry.Msg)
	}
	for _, want := range []string{"INFO partition acquired", "WARN event stored as dead letter", "INFO stopped"} {
		if !slices.Contains(said, want) {
			t.Errorf("no %q in %q", want, said)
		}
	}
	if _, _, errs := invoke(t, "", env, "run", example(t), "--until-caught-up", "--log-level", "warn"); errs != "" {
		t.Errorf("nothing to warn of, and yet %s", errs)
	}
}

// TestHistory: two runs append to one file what the checker wants to know.
func TestHistory(t *testing.T) {
	t.Parallel()
	_, connection := serve(t, 2)
	env := environment(connection, databases["sqlite"](t))
	path := filepath.Join(t.TempDir(), "history.jsonl")
	records := writeLines(t, flights20k(t)[:100])
	for range 2 {
		must(t, "", env, "send", "--hub", "flights", records)
		must(t, "", env, "run", example(t), "--until-caught-up", "--history", path)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	committed := map[string]int64{"0": -1, "1": -1}
	var check history.Checker
	err = history.Read(file, func(r history.Record) {
		check.Add(r)
		if r.Kind == history.Committed {
			committed[r.Partition] += r.To - r.From
		}
	})
	if err != nil || committed["0"] != 99 || committed["1"] != 99 {
		t.Errorf("up to %v was committed, %v", committed, err)
	}
	if found := check.Findings(0); len(found) > 0 {
		need.Verdict(t)
		t.Errorf("found %v", found)
	}
	if code, _, errs := invoke(t, "", env, "run", example(t), "--history", t.TempDir()); code != 1 || !strings.HasPrefix(errs, "sluice: history: open /") {
		t.Errorf("exit code %d: %s", code, errs)
	}
}
