package main_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/internal/proof/asazure"
	"github.com/sluice-go/sluice/internal/proof/need"
)

const demoEvents = 20_000

// auditDemo checks a demo's directory without the demo's own help: the hub
// holds each of the first records once, and each event has exactly one effect.
func auditDemo(t *testing.T, dir string) (events, letters int) {
	t.Helper()
	srv, err := emulator.Start([]emulator.Hub{{Name: "flights", Partitions: 4}}, &emulator.Config{Dir: filepath.Join(dir, "hub"), AsAzure: asazure.FreshRuntime()})
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	h := lookAt(t, srv.ConnectionString())
	var dead []event
	_, dead = deadLetters(t, nil, filepath.Join(dir, "flights.yaml"))
	sent := h.events()
	exactlyOnce(t, sent, rows(t, openDatabase(t, "sqlite:"+filepath.Join(dir, "flights.db"))), dead)

	times := map[string]int{}
	missing := 0
	for _, body := range h.bodies() {
		times[body]++
		if !strings.Contains(body, `"delay"`) {
			missing++
		}
	}
	for _, record := range flights20k(t)[:min(len(sent), demoEvents)] {
		var f map[string]any
		if err := json.Unmarshal(record, &f); err != nil {
			t.Fatal(err)
		}
		delete(f, "delay")
		// The demo writes spoiled records in this order.
		bare, err := json.Marshal(struct {
			Date        any `json:"date"`
			Distance    any `json:"distance"`
			Origin      any `json:"origin"`
			Destination any `json:"destination"`
		}{f["date"], f["distance"], f["origin"], f["destination"]})
		if err != nil {
			t.Fatal(err)
		}
		if n := times[string(record)] + times[string(bare)]; n < 1 || n > 1 && len(sent) <= demoEvents {
			t.Fatalf("the hub holds %d of %s", n, record)
		}
	}
	if share := demoEvents / 997; missing < share || len(dead) > missing {
		t.Errorf("%d records lack their delay, %d dead letters", missing, len(dead))
	}
	return len(sent), len(dead)
}

// inexact is what a demo's audit says of events that are lost, doubled or not what was sent.
var inexact = regexp.MustCompile(`(?m)^sluice: (not exactly once: |the table differs from |[0-9,]+ .*(not written|not processed|dead letter))`)

// endDemo runs a demo to its end, whose audit must find nothing.
func endDemo(t *testing.T, dir string, args ...string) (out string) {
	t.Helper()
	code, out, errs := invoke(t, dir, nil, append(slices.Clone(args), "--once")...)
	if inexact.MatchString(errs) {
		need.Verdict(t)
	}
	if code != 0 {
		t.Fatalf("exit code %d:\n%s%s", code, out, errs)
	}
	return out
}

func TestDemoOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	out := endDemo(t, dir, "demo", "--data", "the demo's data")
	if !strings.Contains(out, "20,000 = 19,980 + 20, each exactly once") {
		t.Errorf("it says\n%s", out)
	}
	if events, letters := auditDemo(t, filepath.Join(dir, "the demo's data")); events != demoEvents || letters != 20 {
		t.Errorf("%d events, %d dead letters", events, letters)
	}

	// What it prints for a person to copy works as it is.
	lines := regexp.MustCompile(`(?m)^  (\S.* deadletters .*)$`).FindAllStringSubmatch(out, -1)
	if len(lines) != 2 {
		t.Fatalf("it prints\n%s", out)
	}
	for i, want := range []string{"column delay: body.delay: is missing", "20 applied, 0 failed again"} {
		p := startCommand(t, dir, nil, nil, exec.Command("sh", "-c", lines[i][1]))
		if code := p.wait(); code != 0 || !strings.Contains(p.out.String(), want) {
			t.Errorf("%s: exit code %d\n%s%s", lines[i][1], code, p.out.String(), p.err.String())
		}
	}
	if out := must(t, dir, nil, "demo", "--once", "--data", "the demo's data"); !strings.Contains(out, "20,000 = 20,000 + 0, each exactly once") {
		t.Errorf("after the retry it says\n%s", out)
	}
}

func TestDemoOfMoreEventsThanRecords(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	out := must(t, "", nil, "demo", "--once", "--events", "45001", "--data", dir)
	if !strings.Contains(out, "45,001 = 44,956 + 45, each exactly once") {
		t.Errorf("it says\n%s", out)
	}
}

func TestDemoCommitsWithinASecond(t *testing.T) {
	// Not parallel: it is about time. The best of several counts, for other
	// things may be going on.
	best := time.Hour
	for tries := 0; tries < 30 && best > time.Second; tries++ {
		dir := t.TempDir()
		db := openDatabase(t, "sqlite:"+filepath.Join(dir, "flights.db"))
		began := time.Now()
		p := start(t, "", nil, "demo", "--data", dir)
		await(t, "the first row", func() bool {
			_, err := os.Stat(filepath.Join(dir, "flights.db"))
			return err == nil && count(t, db, countRows) > 0
		})
		best = min(best, time.Since(began))
		p.kill()
	}
	t.Logf("first committed event seen after %v", best)
	if best > time.Second {
		t.Errorf("the first committed event took %v", best)
	}
}

func TestDemoKilledAtAnyMomentGoesOn(t *testing.T) {
	t.Parallel()
	r := need.Rand(t)
	dir := t.TempDir()
	for range 10 {
		p := start(t, "", nil, "demo", "--data", dir)
		moment := time.NewTimer(time.Duration(r.Int64N(int64(700 * time.Millisecond))))
		select {
		case <-moment.C:
			p.kill()
		case <-p.done:
			t.Fatal("it has ended by itself")
		}
	}
	endDemo(t, "", "demo", "--data", dir)
	if events, _ := auditDemo(t, dir); events < demoEvents {
		t.Errorf("%d events", events)
	}
}

func TestDemoInterruptedEndsWell(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := start(t, "", nil, "demo", "--data", dir, "--events", "1000")
	db := openDatabase(t, "sqlite:"+filepath.Join(dir, "flights.db"))
	await(t, "more than was asked for at once", func() bool {
		return strings.Contains(p.out.String(), "runs until you press") && count(t, db, countRows) > 1010
	})
	config := filepath.Join(dir, "flights.yaml")
	if letters, _ := deadLetters(t, nil, config); len(letters) == 0 {
		t.Error("no dead letters are listed while it runs")
	}
	if list := checkpoints(t, nil, config); list[0].Owner != "demo" || list[0].Lag == nil {
		t.Errorf("while it runs the checkpoints are %+v", list)
	}
	p.signal(os.Interrupt)
	if code := p.wait(); code != 0 || !strings.Contains(p.out.String(), "events in the hub") {
		t.Errorf("exit code %d:\n%s", code, p.out.String())
	}
	if !strings.Contains(must(t, "", nil, "demo", "--data", dir, "--once", "--events", "1"), "each exactly once") {
		t.Error("started again it isn't exact")
	}
}

func TestDemoNoticesWhatIsNotExact(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]string{
		"row twice":   "INSERT INTO flights SELECT * FROM flights WHERE hub_partition = '2' AND sequence_number = 7",
		"row missing": "DELETE FROM flights WHERE hub_partition = '2' AND sequence_number = 7",
		"row of none": "UPDATE flights SET sequence_number = 99999 WHERE hub_partition = '2' AND sequence_number = 7",
		"row changed": "UPDATE flights SET origin = 'XXX' WHERE hub_partition = '2' AND sequence_number = 7",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			args := []string{"demo", "--once", "--events", "100", "--data", dir}
			must(t, "", nil, args...)
			if _, err := openDatabase(t, "sqlite:"+filepath.Join(dir, "flights.db")).ExecContext(t.Context(), spoil); err != nil {
				t.Fatal(err)
			}
			if code, out, errs := invoke(t, "", nil, args...); code != 1 || slices.Contains([]string{"", "\n"}, errs) || strings.Contains(out, "exactly once") {
				t.Errorf("exit code %d:\n%s%s", code, out, errs)
			}
		})
	}
}
