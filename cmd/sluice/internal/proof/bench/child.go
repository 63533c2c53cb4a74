//go:build unix

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
)

// roleVariable makes this program another process's child. The job comes as
// JSON in the first line of its input, since it holds passwords; what it has
// to say goes to its output in lines of JSON.
const (
	roleVariable = "SLUICE_BENCH_ROLE"
	hubRole      = "hub"
	consumerRole = "consumer"
)

// child is a running process of this program.
type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func spawn(ctx context.Context, role string, job any) (*child, error) {
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
	c.cmd.Stderr = os.Stderr
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

// hear reads the child's next line into v.
func (c *child) hear(v any) error {
	line, err := c.out.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("the process ended early: %w", err)
	}
	return json.Unmarshal(line, v)
}

// nod lets a child go on that has told something.
func (c *child) nod() error {
	_, err := c.in.Write([]byte{'\n'})
	return err
}

// end lets the child go and waits for it.
func (c *child) end() error {
	c.in.Close()
	return c.cmd.Wait()
}

// parent is who has started this process.
type parent struct {
	nods chan struct{}
}

// say writes a line for the parent.
func (*parent) say(v any) error { return json.NewEncoder(os.Stdout).Encode(v) }

// tell writes a line and waits for the parent's nod.
func (p *parent) tell(v any) error {
	if err := p.say(v); err != nil {
		return err
	}
	if _, ok := <-p.nods; !ok {
		return errors.New("the parent is gone")
	}
	return nil
}

// listen hears the parent's nods until its end of the pipe is closed: it is
// gone then, or wants this process gone.
func (p *parent) listen(in io.ByteReader) {
	defer close(p.nods)
	for {
		if _, err := in.ReadByte(); err != nil {
			return
		}
		p.nods <- struct{}{}
	}
}
