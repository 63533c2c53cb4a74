package processors

import (
	"bufio"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// processor is a run of one of the programs.
type processor struct {
	t    *testing.T
	cmd  *exec.Cmd
	errs strings.Builder
	done chan struct{} // closed once its output was read

	mu      sync.Mutex
	handled map[string][]int64 // by partition, in its order
	stored  map[string]int64   // by partition: the last checkpoint that it knows to be stored
}

// process starts a program. It ends with the test at the latest.
func process(t *testing.T, cmd *exec.Cmd) *processor {
	t.Helper()
	p := &processor{t: t, cmd: cmd, done: make(chan struct{}), handled: map[string][]int64{}, stored: map[string]int64{}}
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = &p.errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		for lines := bufio.NewScanner(output); lines.Scan(); {
			p.note(lines.Text())
		}
		_ = cmd.Wait() // it was killed
	}()
	t.Cleanup(p.kill)
	return p
}

func (p *processor) note(line string) {
	var what, partition string
	var sequence int64
	if _, err := fmt.Sscan(line, &what, &partition, &sequence); err != nil {
		p.t.Errorf("the processor says %q", line)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if what == "stored" {
		p.stored[partition] = sequence
	} else {
		p.handled[partition] = append(p.handled[partition], sequence)
	}
}

// kill is SIGKILL. After it, what the processor has done is final.
func (p *processor) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// await waits until the processor has done something.
func (p *processor) await(what string, done func() bool) {
	p.t.Helper()
	if !eventually(p.t, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return done()
	}, p.done) {
		p.kill()
		p.t.Fatalf("the processor has not %s: %d and %d events handled\n%s", what, len(p.handled["0"]), len(p.handled["1"]), p.errs.String())
	}
}

// total is how many events it has handled.
func (p *processor) total() (n int) {
	for _, list := range p.handled {
		n += len(list)
	}
	return n
}
