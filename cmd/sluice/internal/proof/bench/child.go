//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
)

// roleVariable makes this process a child of another process of this program.
// Its job is the first line of its standard input, as JSON, since it holds
// passwords; it reports on its standard output, one line of JSON each.
const (
	roleVariable = "SLUICE_BENCH_ROLE"
	hubRole      = "hub"
	consumerRole = "consumer"
	soakRole     = "soak"
)

// child is a running process of this program.
type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader

	errors *bytes.Buffer // what a quiet child has written; complete after end
}

// spawn starts a child, which writes its errors where this process does.
func spawn(ctx context.Context, role string, job any) (*child, error) {
	return spawnTo(ctx, os.Stderr, role, job)
}

// spawnQuiet starts a child that is going to be ended or killed. Its errors are kept.
func spawnQuiet(ctx context.Context, role string, job any) (*child, error) {
	kept := &bytes.Buffer{}
	c, err := spawnTo(ctx, kept, role, job)
	if err != nil {
		return nil, err
	}
	c.errors = kept
	return c, nil
}

func spawnTo(ctx context.Context, stderr io.Writer, role string, job any) (*child, error) {
	line, err := json.Marshal(job)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{cmd: exec.CommandContext(ctx, self)}
	c.cmd.Env = append(os.Environ(), roleVariable+"="+role)
	c.cmd.Stderr = stderr
	in, err := c.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	c.in = in
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.out = bufio.NewReader(out)
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", role, err)
	}
	if _, err := in.Write(append(line, '\n')); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", role, err), c.end())
	}
	return c, nil
}

// receive reads the child's next line into v.
func (c *child) receive(v any) error {
	line, err := c.out.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("the child process ended early: %w", err)
	}
	return json.Unmarshal(line, v)
}

// confirm lets a child continue that waits in sendAndWait.
func (c *child) confirm() error {
	_, err := c.in.Write([]byte{'\n'})
	return err
}

// end closes the input of the child, which ends it, and waits for it.
func (c *child) end() error {
	c.in.Close()
	return c.cmd.Wait()
}

// parent is the connection to the process that has started this one.
type parent struct {
	confirmations chan struct{}
}

// send writes a line to the parent.
func (*parent) send(v any) error { return json.NewEncoder(os.Stdout).Encode(v) }

// sendAndWait writes a line and waits until the parent confirms it.
func (p *parent) sendAndWait(v any) error {
	if err := p.send(v); err != nil {
		return err
	}
	if _, ok := <-p.confirmations; !ok {
		return errors.New("the parent process has ended")
	}
	return nil
}

// listen reads the parent's confirmations until the parent closes its end of the
// pipe: it has ended then, or ends this process.
func (p *parent) listen(in io.ByteReader) {
	defer close(p.confirmations)
	for {
		if _, err := in.ReadByte(); err != nil {
			return
		}
		p.confirmations <- struct{}{}
	}
}
