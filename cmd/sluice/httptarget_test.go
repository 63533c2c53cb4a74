package main_test

import (
	"bufio"
	"database/sql"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/cmd/sluice/internal/proof/interop"
	"github.com/sluice-go/sluice/internal/proof/need"
)

// TestHTTPReceivers: 100,000 flight records go to each of the receivers in examples/http while both
// sides are killed. Each record has its effect once, and those without a delay are the dead
// letters.
func TestHTTPReceivers(t *testing.T) {
	need.Clients(t)
	need.RealTime(t)
	for _, c := range []struct{ program, script string }{{interop.Python, "receiver.py"}, {interop.Node, "receiver.js"}} {
		t.Run(c.script, func(t *testing.T) {
			t.Parallel()
			receiveUnderKill(t, c.program, c.script)
		})
	}
}

const webhookKey = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="

func receiveUnderKill(t *testing.T, program, script string) {
	const copies, bad = 5, 7
	records := flights20k(t)
	good, delay := copies*len(records), int64(0)
	for _, r := range records {
		var flight struct{ Delay int64 }
		decode(t, string(r), &flight)
		delay += copies * flight.Delay
	}
	r := need.Rand(t)
	_, connection := serve(t, 4)
	v := newHTTPReceiver(t, program, script)
	env := environment(connection, "sqlite:"+filepath.Join(t.TempDir(), "state.db"), "TARGET_URL="+v.url, "WEBHOOK_KEY="+webhookKey, "ORDER=none")
	config := changedFile(t, "../../examples/http.yaml", append(shortLease("sqlite:"), "    # signature:\n    #   key:", "    signature:\n      key:")...)
	for range copies {
		must(t, "", env, "send", "--hub", "flights", writeLines(t, records))
	}
	must(t, "", env, "send", "--hub", "flights", writeLines(t, spoiled(bad)))

	consumer := start(t, "", env, "run", config)
	for kills := 0; kills < 6; kills++ {
		from := v.flights()
		await(t, "more records", func() bool { n := v.flights(); return n >= from+int64(good/10) || n == int64(good) })
		time.Sleep(time.Duration(r.Int64N(int64(20 * time.Millisecond)))) // so that it strikes anywhere in a request
		if kills%2 == 0 {
			v.restart()
			continue
		}
		consumer.kill()
		consumer = start(t, "", env, "run", config)
	}
	consumer.kill()
	must(t, "", env, "run", config, "--until-caught-up")
	n, sum := v.flights(), count(t, v.db, "SELECT sum(delay) FROM airports")
	letters, _ := deadLetters(t, env, config)
	need.Verdict(t)
	if n != int64(good) {
		t.Errorf("%d records have their effect, want %d", n, good)
	}
	if sum != delay {
		t.Errorf("the delays add up to %d, want %d", sum, delay)
	}
	for _, l := range letters {
		if !strings.Contains(l.Error, "200 OK: the receiver rejects the event (has no whole number as delay)") {
			t.Errorf("dead letter %+v", l)
		}
	}
	if len(letters) != bad {
		t.Errorf("%d dead letters, want %d", len(letters), bad)
	}
}

// httpReceiver is a program of examples/http.
type httpReceiver struct {
	t               *testing.T
	program, script string
	database, port  string
	url             string
	db              *sql.DB
	cmd             *exec.Cmd
}

func newHTTPReceiver(t *testing.T, program, script string) *httpReceiver {
	v := &httpReceiver{t: t, program: program, script: script, database: filepath.Join(t.TempDir(), "airports.db"), port: "0"}
	v.start()
	v.db = openDatabase(t, "sqlite:"+v.database)
	return v
}

// start starts the program and waits until it listens.
func (v *httpReceiver) start() {
	v.t.Helper()
	v.cmd = interop.Command(v.t, v.program, filepath.Join("..", "..", "examples", "http", v.script))
	v.cmd.Env = append(v.cmd.Env, "PORT="+v.port, "DATABASE="+v.database, "WEBHOOK_KEY="+webhookKey)
	out, err := v.cmd.StdoutPipe()
	if err != nil {
		v.t.Fatal(err)
	}
	if err := v.cmd.Start(); err != nil {
		v.t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	url, ok := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	if err != nil || !ok {
		v.t.Fatalf("%s printed %q, %v", v.script, line, err)
	}
	v.url, v.port = url, url[strings.LastIndexByte(url, ':')+1:]
}

// restart kills the program and starts it again, at the same address.
func (v *httpReceiver) restart() {
	v.t.Helper()
	_ = v.cmd.Process.Kill()
	_ = v.cmd.Wait()
	v.start()
}

// flights returns how many records have had their effect.
func (v *httpReceiver) flights() int64 {
	v.t.Helper()
	return count(v.t, v.db, "SELECT coalesce(sum(flights), 0) FROM airports")
}
