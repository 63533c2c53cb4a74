package chromium

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	_ "modernc.org/sqlite" // to spoil a table

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/cmd/sluice/internal/scalingview"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/internal/proof/built"
	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/pipeline/web"
	"github.com/sluice-go/sluice/sluicetest"
)

var screenshots = flag.String("screenshots", "", "`directory` for a picture of each page in both themes")

// patience is long enough for a machine with other load.
const patience = 5 * time.Minute

var program = built.Main("github.com/sluice-go/sluice/cmd/sluice")

func TestMain(m *testing.M) { os.Exit(built.Run(m)) }

// browse runs a scenario of browser.js.
func browse(t *testing.T, scenario, url string, more map[string]string) {
	t.Helper()
	installed, err := filepath.Abs("../../../../../.dev/chromium")
	if err != nil {
		t.Fatal(err)
	}
	given := map[string]string{"url": url, "chromium": filepath.Join(installed, "bin", "chromium")}
	if *screenshots != "" {
		if given["screenshots"], err = filepath.Abs(*screenshots); err != nil {
			t.Fatal(err)
		}
	}
	for name, value := range more {
		given[name] = value
	}
	text, err := json.Marshal(given)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(installed, "bin", "node"), "browser.js", scenario, string(text))
	cmd.Env = append(os.Environ(), "NODE_PATH="+filepath.Join(installed, "node_modules"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", scenario, err, out)
	}
}

// output collects the output of a process.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

var address = regexp.MustCompile(`https://127\.0\.0\.1:\d+/`)

// start starts a process of sluice with a dashboard, and returns its URL.
func start(t *testing.T, env []string, args ...string) string {
	t.Helper()
	cmd := exec.Command(program.Path(t), append(args, "--web", "127.0.0.1:0")...)
	out := &output{}
	cmd.Stdout, cmd.Stderr, cmd.Dir, cmd.Env = out, out, t.TempDir(), append(os.Environ(), env...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if err := <-ended; err != nil {
			t.Errorf("sluice %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	})
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for {
		if url := address.FindString(out.String()); url != "" {
			return url
		}
		select {
		case <-look.C:
		case err := <-ended:
			ended <- err
			t.Fatalf("sluice %s: %v\n%s", strings.Join(args, " "), err, out)
		case <-deadline.C:
			t.Fatalf("sluice %s shows no dashboard\n%s", strings.Join(args, " "), out)
		}
	}
}

func TestDemo(t *testing.T) {
	need.Chromium(t)
	need.RealTime(t)
	url := start(t, nil, "demo", "--data", t.TempDir())
	browse(t, "demo", url, nil)
	browse(t, "everybody", url, nil)
}

// lettered makes a pipeline that has some dead letters, and returns the file of
// one that would take them, and what both need.
func lettered(t *testing.T, letters []string) (mended string, env []string) {
	t.Helper()
	hub, err := emulator.Start([]emulator.Hub{{Name: "flights", Partitions: 2}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { hub.Close() })
	dir := t.TempDir()
	env = []string{"EVENTHUB_CONNECTION_STRING=" + hub.ConnectionString(), "DATABASE_URL=sqlite:" + filepath.Join(dir, "flights.db")}
	example, err := os.ReadFile("../../../../../examples/flights.yaml")
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const strict = "delay: {from: body.delay, type: integer}"
	if !strings.Contains(string(example), strict) {
		t.Fatal("the example does not demand a delay")
	}
	flights := write("flights.yaml", string(example))
	mended = write("fixed.yaml", strings.Replace(string(example), strict, "delay: {from: body.delay, type: integer, required: false}", 1))
	records := write("records.ndjson", strings.Join(letters, "\n")+"\n")
	for _, args := range [][]string{
		{"send", "--hub", "flights", "--key-field", "origin", records}, {"run", flights, "--until-caught-up"},
	} {
		cmd := exec.Command(program.Path(t), args...)
		cmd.Env, cmd.Dir = append(os.Environ(), env...), dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("sluice %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	// Both are one pipeline, as they have one name.
	if err := os.Rename(mended, flights); err != nil {
		t.Fatal(err)
	}
	return flights, env
}

func spoiled(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf(`{"date":"2001/01/14 21:55","distance":%d,"origin":"SAN","destination":"SMF"}`, i)
	}
	return list
}

func TestLetters(t *testing.T) {
	need.Chromium(t)
	need.RealTime(t)
	config, env := lettered(t, spoiled(12))
	url := start(t, env, "run", config)
	browse(t, "retry", url, nil)
	browse(t, "keyboard", url, nil)
}

// TestAudit audits a pipeline whose table is whole, and then what was spoiled.
func TestAudit(t *testing.T) {
	need.Chromium(t)
	need.RealTime(t)
	records := spoiled(6)
	for i := range 2000 {
		records = append(records, fmt.Sprintf(`{"date":"2001/01/14 21:55","delay":%d,"distance":%d,"origin":"A%02d","destination":"SMF"}`, i%60, i, i%40))
	}
	config, env := lettered(t, records)
	url := start(t, env, "run", config)
	browse(t, "audit", url, map[string]string{"verdict": "Nothing lost, nothing duplicated: 2,006 events, 2,000 written, 6 dead letters, 0 waiting.", "level": "good", "faults": "0", "once": "yes"})

	db, err := sql.Open("sqlite", "file:"+filepath.Join(filepath.Dir(config), "flights.db")+"?_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, text := range []string{
		`DELETE FROM flights WHERE hub_partition = '0' AND sequence_number BETWEEN 100 AND 102`,
		`INSERT INTO flights SELECT * FROM flights WHERE hub_partition = '1' AND sequence_number = 50`,
	} {
		if _, err := db.ExecContext(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	browse(t, "audit", url, map[string]string{"verdict": "Not exact: 3 lost, 1 duplicated, of 2,006 events.", "level": "bad", "faults": "2"})
}

func TestToken(t *testing.T) {
	need.Chromium(t)
	need.RealTime(t)
	config, env := lettered(t, spoiled(1))
	const token = "correct horse battery staple"
	url := start(t, append(env, "TOKEN="+token), "run", config, "--web-token-env", "TOKEN")
	browse(t, "token", url, map[string]string{"token": token})
}

// serve serves a dashboard of this process, and returns its address.
func serve(t *testing.T, d *web.Dashboard) string {
	t.Helper()
	s, err := d.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s.Addr().String()
}

// listen serves a dashboard of one pipeline, and returns its URL.
func listen(t *testing.T, p web.Pipeline, cfg *web.Config) string {
	t.Helper()
	cfg.Dir = t.TempDir()
	d, err := web.New([]web.Pipeline{p}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return "https://" + serve(t, d) + "/"
}

func TestMarkup(t *testing.T) {
	need.Chromium(t)
	need.RealTime(t)
	const attack = `"><img src=x onerror=alert(1)><script>alert(1)</script>`
	group := sluice.Group{Namespace: "ns", Topic: "t", Name: "g"}
	store, meter := new(sluicetest.Store), web.NewMeter()
	e := sluice.Event{Partition: "0", Sequence: 1, Key: attack, MessageID: attack, ContentType: "text/html", Properties: map[string]any{attack: attack}, Body: []byte(attack)}
	letters := []sluice.DeadLetter{{Event: e, HasBody: true}, {Event: e, HasBody: true}}
	letters[1].Event.Sequence, letters[1].Event.Body = 2, []byte(`{"html":`+fmt.Sprintf("%q", attack)+`}`)
	for i := range letters {
		letters[i].Group, letters[i].Status, letters[i].Error, letters[i].FailedAt = group, sluice.StatusDead, attack, time.Now()
	}
	if err := store.Park(t.Context(), letters); err != nil {
		t.Fatal(err)
	}
	meter.Observe(driver.Observation{Kind: driver.KindParked, Partition: "0", Err: fmt.Errorf("refused: %s", attack)})
	url := listen(t, web.Pipeline{Name: attack, Group: group, Source: sluicetest.NewHub(group, 1), Leases: new(sluicetest.Leases), DeadLetters: store, Meter: meter}, &web.Config{})
	browse(t, "markup", url, nil)
}

// TestScaling shows the state of an autoscaler that has scaled once.
func TestScaling(t *testing.T) {
	need.Chromium(t)
	need.RealTime(t)
	const resource, metric = "workers", "orders-invoices-backlog"
	store, now := autoscale.NewMemoryStore(), time.Now()
	m, err := store.Load(t.Context(), resource)
	if err != nil {
		t.Fatal(err)
	}
	m.Instances, m.Reported, m.LastUp = 3, now, now.Add(-6*time.Minute)
	w := &autoscale.Window{}
	var records []autoscale.Record
	for i := range 11 {
		at := now.Add(time.Duration(i-10) * time.Minute)
		w.Add(autoscale.Point{Resource: resource, Metric: metric, Time: at, Value: []float64{420, 560, 700, 720, 800, 760, 610, 480, 350, 260, 210}[i]})
		r := autoscale.Record{Resource: resource, Sequence: int64(len(records) + 1), Time: at, Kind: autoscale.Hold, Instances: 2, Wanted: 2, Reason: "fewer than 5 values"}
		switch {
		case i == 4:
			r.Kind, r.Wanted, r.Action, r.Reason = autoscale.Up, 3, 1, "average 640 over 500"
			r.Stats = []autoscale.MetricStats{{Metric: metric, Points: 5, Last: 800, Average: 640, Min: 420, Max: 800, Newest: at}}
		case i > 4:
			r.Instances, r.Wanted, r.Reason = 3, 3, "cooling down: the last action was less than 10m ago"
		}
		records = append(records, r)
		if i == 4 {
			records = append(records, autoscale.Record{Resource: resource, Sequence: int64(len(records) + 1), Time: at.Add(5 * time.Second), Kind: autoscale.ActionSucceeded, Instances: 3, Wanted: 3, Action: 1, Reason: "3 instances after 5s"})
		}
	}
	m.Windows = map[string]*autoscale.Window{metric: w}
	if err := store.Save(t.Context(), m, records...); err != nil {
		t.Fatal(err)
	}
	group := sluice.Group{Namespace: "ns", Topic: "t", Name: "g"}
	const unaudited = "Orders are summed up: compare the sums."
	url := listen(t, web.Pipeline{Name: "orders", Group: group, Source: sluicetest.NewHub(group, 1), Leases: new(sluicetest.Leases), Unaudited: unaudited},
		&web.Config{Scaling: scalingview.New(store, resource)})
	browse(t, "scaling", url, map[string]string{"unaudited": unaudited})
}
