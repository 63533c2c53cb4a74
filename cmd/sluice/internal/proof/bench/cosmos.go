//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sluice-go/sluice/cmd/sluice/internal/proof/measure"
)

// cosmosBench is a run of `bench cosmos`.
type cosmosBench struct {
	events     int
	ru         int
	offered    int
	partitions int
	hub        int
	modes      string
	dir        string
	clients    string // where scripts/install-interop has put Azure's clients
}

// runCosmos measures millions of events from a hub into Cosmos DB, through
// `sluice run` as its users run it, with the embedded hub and account on the
// same machine. Azure's own client for JavaScript reads the id of every
// document back.
func runCosmos(ctx context.Context, args []string) error {
	var o cosmosBench
	flag := flag.NewFlagSet("bench cosmos", flag.ExitOnError)
	flag.IntVar(&o.events, "events", 4_200_000, "how many events of about 1 KB")
	flag.IntVar(&o.ru, "ru", 0, "RU per second that the account has provisioned; 0: no limit")
	flag.IntVar(&o.offered, "rate-ru", 0, "RU per second that the pipeline may use; 0: what the account has")
	flag.IntVar(&o.partitions, "partitions", 5, "physical partitions of the container")
	flag.IntVar(&o.hub, "hub-partitions", 8, "partitions of the hub")
	flag.StringVar(&o.modes, "modes", "bulk", "how documents travel: bulk, point, or bulk,point for a run of each")
	_ = flag.Parse(args) // exits on an error
	if flag.NArg() > 0 || o.events < 1 || o.partitions < 1 || o.hub < 1 || o.ru < 0 {
		return errors.New("bench cosmos takes flags only, and positive numbers; -help lists them")
	}
	if err := o.findClients(); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "sluice-bench-cosmos-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	o.dir = dir
	build := exec.CommandContext(ctx, "go", "build", "-o", o.binary(), "./cmd/sluice")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build: %w: %s", err, out)
	}
	for _, mode := range strings.Split(o.modes, ",") {
		if err := o.measure(ctx, mode); err != nil {
			return fmt.Errorf("%s: %w", mode, err)
		}
	}
	return nil
}

// findClients checks, before anything is measured, that the client is installed
// which reads the documents back.
func (o *cosmosBench) findClients() (err error) {
	if o.clients, err = filepath.Abs(filepath.Join(".dev", "interop")); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(o.clients, "bin", "node")); err != nil {
		return fmt.Errorf("the client that reads the documents back is not installed: run scripts/install-interop in the project's directory (%w)", err)
	}
	return nil
}

func (o *cosmosBench) binary() string { return filepath.Join(o.dir, "sluice") }

// cosmosResult is what was measured in a run.
type cosmosResult struct {
	Mode       string          `json:"mode"`
	Events     int             `json:"events"`
	Seconds    float64         `json:"seconds"` // of the consumer's process, start and stop included
	PerSecond  float64         `json:"events_per_second"`
	Sent       float64         `json:"sent_per_second"`
	CPU        float64         `json:"consumer_cpu_us_per_event"`
	ServerCPU  float64         `json:"servers_cpu_us_per_event"` // hub and account
	PeakMB     float64         `json:"consumer_peak_rss_mb"`
	Writes     int64           `json:"writes"`
	RU         float64         `json:"ru_per_event"`
	Used       float64         `json:"ru_used_of_provisioned,omitempty"` // from the first write to the last
	Throttled  float64         `json:"operations_throttled"`             // share
	Readback   json.RawMessage `json:"readback"`
	Connection int64           `json:"connections"`
}

// accountStats are those of the account's counts that are needed here.
type accountStats struct {
	Connections, Operations, Throttled int64
	containerStats
}

type containerStats struct {
	Spent  float64
	Ranges []struct{ Writes int64 }
}

func (o *cosmosBench) measure(ctx context.Context, mode string) error {
	data, err := os.MkdirTemp(o.dir, "hub-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(data)
	args := []string{"emulator", "serve", "--listen", "127.0.0.1:0", "--data", data, "--hub", fmt.Sprint("docs=", o.hub),
		"--cosmos", "127.0.0.1:0", "--cosmos-container", "db/docs:/key", "--cosmos-partitions", strconv.Itoa(o.partitions), "--cosmos-control", "127.0.0.1:0"}
	if o.ru > 0 {
		args = append(args, "--cosmos-ru", strconv.Itoa(o.ru))
	}
	running, ready, err := o.serve(ctx, args)
	if err != nil {
		return err
	}
	defer running.end()
	config, err := o.pipeline(mode)
	if err != nil {
		return err
	}
	env := append(os.Environ(), "EVENTHUB_CONNECTION_STRING="+ready.hub, "COSMOS_ENDPOINT="+ready.endpoint, "COSMOS_KEY="+ready.key,
		fmt.Sprint("COSMOS_RU=", o.allowedRU()), "DATABASE_URL=sqlite:"+filepath.Join(data, "state.db"))

	f := cosmosResult{Mode: mode, Events: o.events}
	began := time.Now()
	if _, err := o.command(ctx, env, "send", "--hub", "docs", "--generate", strconv.Itoa(o.events), "--replicas", "2"); err != nil {
		return err
	}
	f.Sent = float64(o.events) / time.Since(began).Seconds()

	before := measure.CPUOf(running.cmd.Process.Pid)
	watched, unwatch := context.WithCancel(ctx)
	writing := make(chan time.Duration, 1)
	go func() { writing <- writingTime(watched, ready.control+"/stats/db/docs") }()
	began = time.Now()
	used, err := o.command(ctx, env, "run", config, "--until-caught-up", "--within", "60m")
	unwatch()
	wrote := <-writing
	if err != nil {
		return err
	}
	f.Seconds = time.Since(began).Seconds()
	f.PerSecond = float64(o.events) / f.Seconds
	f.CPU = (used.SystemTime() + used.UserTime()).Seconds() / float64(o.events) * 1e6
	f.ServerCPU = (measure.CPUOf(running.cmd.Process.Pid) - before).Seconds() / float64(o.events) * 1e6
	if rusage, ok := used.SysUsage().(*syscall.Rusage); ok {
		f.PeakMB = float64(rusage.Maxrss) / 1024
	}
	var s accountStats
	if err := errors.Join(get(ctx, ready.control+"/stats", &s), get(ctx, ready.control+"/stats/db/docs", &s.containerStats)); err != nil {
		return err
	}
	for _, r := range s.Ranges {
		f.Writes += r.Writes
	}
	f.RU, f.Throttled, f.Connection = s.Spent/float64(o.events), float64(s.Throttled)/float64(s.Operations), s.Connections
	if o.ru > 0 {
		f.Used = s.Spent / wrote.Seconds() / float64(o.ru)
	}
	if f.Readback, err = o.readback(ctx, env); err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	out.SetIndent("", "  ")
	return out.Encode(f)
}

// writingTime returns the time from the first write to the last, to a tenth of
// a second. It returns when ctx ends.
func writingTime(ctx context.Context, url string) time.Duration {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	var first, last time.Time
	var spent float64
	for {
		var c containerStats
		if get(ctx, url, &c) == nil && c.Spent > spent {
			spent, last = c.Spent, time.Now()
			if first.IsZero() {
				first = last
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return last.Sub(first) + 100*time.Millisecond // the first poll saw what was written before it
		}
	}
}

// allowedRU is the RU per second that the pipeline may use: the pipeline file
// must state one.
func (o *cosmosBench) allowedRU() int {
	switch {
	case o.offered > 0:
		return o.offered
	case o.ru > 0:
		return o.ru
	}
	return 10_000_000
}

// pipeline writes examples/cosmos.yaml with a mode, and returns its path.
func (o *cosmosBench) pipeline(mode string) (string, error) {
	text, err := os.ReadFile("examples/cosmos.yaml")
	if err != nil {
		return "", fmt.Errorf("run it in the project's directory: %w", err)
	}
	const at = "    id: body.id\n"
	if !bytes.Contains(text, []byte(at)) {
		return "", errors.New("examples/cosmos.yaml has no id")
	}
	path := filepath.Join(o.dir, mode+".yaml")
	return path, os.WriteFile(path, bytes.Replace(text, []byte(at), []byte("    mode: "+mode+"\n"+at), 1), 0o644)
}

// command runs the binary to its end. Its output goes to standard error.
func (o *cosmosBench) command(ctx context.Context, env []string, args ...string) (*os.ProcessState, error) {
	cmd := exec.CommandContext(ctx, o.binary(), args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = env, os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("sluice %s: %w", args[0], err)
	}
	return cmd.ProcessState, nil
}

// readback reads every id with Azure's client and returns what it counted.
func (o *cosmosBench) readback(ctx context.Context, env []string) (json.RawMessage, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(o.clients, "bin", "node"), "cmd/sluice/internal/proof/bench/readback.js")
	cmd.Env, cmd.Stderr = append(env, fmt.Sprint("COUNT=", o.events), "NODE_PATH="+filepath.Join(o.clients, "node_modules")), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("read back: %w: %s", err, out)
	}
	return out, nil
}

func get(ctx context.Context, url string, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	return json.NewDecoder(response.Body).Decode(into)
}

// addresses are what the servers print when they are ready.
type addresses struct{ control, hub, endpoint, key string }

// servers is the process of hub and account.
type servers struct {
	cmd     *exec.Cmd
	drained chan struct{} // closed when its output has ended
}

// serve starts the servers.
func (o *cosmosBench) serve(ctx context.Context, args []string) (*servers, *addresses, error) {
	cmd := exec.CommandContext(ctx, o.binary(), args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	p := &servers{cmd: cmd, drained: make(chan struct{})}
	lines := bufio.NewScanner(out)
	var a addresses
	for lines.Scan() {
		line := lines.Text()
		fields := strings.Fields(line)
		switch {
		case strings.HasPrefix(line, "cosmos-control "):
			a.control = fields[1]
		case strings.HasPrefix(line, "ready ") && a.hub == "":
			a.hub = strings.TrimPrefix(line, "ready ")
		case strings.HasPrefix(line, "ready "):
			account, _ := strings.CutPrefix(fields[1], "AccountEndpoint=")
			a.endpoint, a.key, _ = strings.Cut(account, ";AccountKey=")
			a.key = strings.TrimSuffix(a.key, ";")
		}
		if a.key != "" {
			break
		}
	}
	go func() {
		defer close(p.drained)
		for lines.Scan() {
		}
	}()
	if a.key == "" || a.control == "" {
		p.end()
		return nil, nil, errors.New("sluice emulator serve ended before its servers were ready; its output is above")
	}
	return p, &a, nil
}

func (p *servers) end() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	<-p.drained
	_ = p.cmd.Wait()
}
