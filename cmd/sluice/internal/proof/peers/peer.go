//go:build unix

package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// peer is one of the consumers that are compared.
type peer struct {
	Name    string   `json:"name"`
	Version string   `json:"version,omitempty"`
	Command []string `json:"command"`
	Source  []string `json:"source"` // files of this directory that say how it works
	// Promise is what its documentation, or its code, promises for rows without a key.
	Promise string `json:"promise"`

	programs string // the directory in which Command is
	failed   error  // why it takes no further part
}

const (
	sluicePeer = "Sluice"
	loopPeer   = "loop by hand"
)

//go:embed config
var configs embed.FS

const atLeastOnce = "at least once"

func allPeers(o options) []*peer {
	java := func(class string, args ...string) []string {
		return append([]string{"java", "-Xmx1g", "-cp", filepath.Dir(class) + "/*", filepath.Base(class)}, args...)
	}
	all := []*peer{
		{Name: loopPeer, Command: []string{"./consumer", "loop"}, Source: []string{"consumer/loop.go"}, Promise: "effects once, if one process runs at a time"},
		{Name: sluicePeer, Command: []string{"./consumer", "sluice"}, Source: []string{"consumer/sluice.go"}, Promise: "effects once"},
		{Name: "Redpanda Connect, sql_insert", Version: "4.61.0", Command: []string{"./redpanda", "run", "config/redpanda.yaml"}, Source: []string{"config/redpanda.yaml"}, Promise: atLeastOnce},
		{Name: "Redpanda Connect, sql_raw", Version: "4.61.0", Command: []string{"./redpanda", "run", "config/redpanda-json.yaml"}, Source: []string{"config/redpanda-json.yaml"}, Promise: atLeastOnce},
		{Name: "parallel consumer, COPY", Version: "0.5.3.3", Command: java("parallelconsumer/ParallelConsumer"),
			Source: []string{"programs/parallelconsumer/ParallelConsumer.java"}, Promise: atLeastOnce + ", no order"},
		{Name: "Kafka Connect, Debezium JDBC", Version: "4.1.0, 3.3.1", Command: java("connect/org.apache.kafka.connect.cli.ConnectStandalone", "config/connect.properties", "config/sink.properties"),
			Source: []string{"config/connect.properties", "config/sink.properties"}, Promise: atLeastOnce},
		{Name: "Watermill", Version: "1.5.1, kafka 3.1.2", Command: []string{"./watermill"}, Source: []string{"programs/watermill/main.go"}, Promise: atLeastOnce},
	}
	var list []*peer
	for _, p := range all {
		if o.only.MatchString(p.Name) {
			p.programs = o.programs
			list = append(list, p)
		}
	}
	return list
}

// isPair reports whether the peer is one of the two that are compared in every round.
func (p *peer) isPair() bool { return p.Name == loopPeer || p.Name == sluicePeer }

// installed reports whether the peer can run.
func (p *peer) installed() error {
	name := p.Command[0]
	if strings.HasPrefix(name, "./") {
		name = filepath.Join(p.programs, name)
	}
	if _, err := exec.LookPath(name); err != nil {
		return fmt.Errorf("%s is not installed: run scripts/install-peers: %w", p.Name, err)
	}
	return nil
}

// process is a running peer.
type process struct {
	cmd  *exec.Cmd
	log  string
	done chan struct{} // closed once it has ended
	err  error         // of Wait; read after done
}

// start starts the peer in a directory of its own.
func (p *peer) start(dir string, environment []string) (*process, error) {
	if err := os.CopyFS(dir, configs); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	name, args := p.Command[0], p.Command[1:]
	if strings.HasPrefix(name, "./") {
		name = filepath.Join(p.programs, name)
	}
	args = append([]string{}, args...)
	for i, arg := range args {
		if i > 0 && args[i-1] == "-cp" {
			args[i] = filepath.Join(p.programs, arg)
		}
	}
	log, err := os.OpenFile(filepath.Join(dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	r := &process{cmd: exec.Command(name, args...), log: log.Name(), done: make(chan struct{})}
	r.cmd.Dir, r.cmd.Env, r.cmd.Stdout, r.cmd.Stderr = dir, environment, log, log
	if err := r.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", p.Name, err)
	}
	go func() {
		r.err = r.cmd.Wait()
		close(r.done)
	}()
	return r, nil
}

// stopWithin is how long a peer may take to end after SIGTERM.
const stopWithin = 20 * time.Second

// stop ends the process, and returns what it has used.
func (r *process) stop() *syscall.Rusage {
	_ = r.cmd.Process.Signal(syscall.SIGTERM) // fails only if it has ended
	select {
	case <-r.done:
	case <-time.After(stopWithin):
	}
	r.kill()
	usage, _ := r.cmd.ProcessState.SysUsage().(*syscall.Rusage)
	return usage
}

// kill ends the process by SIGKILL.
func (r *process) kill() {
	_ = r.cmd.Process.Kill() // fails only if it has ended
	<-r.done
}

// poll calls ok every so often until it returns true. It fails if the process ends by
// itself, or ctx does.
func (r *process) poll(ctx context.Context, every time.Duration, ok func() (bool, error)) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if done, err := ok(); done || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-r.done:
			return fmt.Errorf("it ended by itself: %w: %s", r.err, r.output())
		case <-ctx.Done():
			return fmt.Errorf("%w: %s", context.Cause(ctx), r.output())
		}
	}
}

// output is the end of what the process has printed.
func (r *process) output() string {
	data, _ := os.ReadFile(r.log)
	return string(data[max(0, len(data)-2000):])
}
