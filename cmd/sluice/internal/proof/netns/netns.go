//go:build linux

// Package netns makes network namespaces whose cables tests unplug.
package netns

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// Network is the host's end of the cables to a number of network namespaces.
type Network struct {
	Host       string // its address, the same on all cables
	Namespaces []*Namespace
}

// Namespace is a network namespace, joined to the host by one cable (a veth pair). It
// exists as long as the process keeper runs, which ends when its standard input is
// closed, at the latest when this process ends.
type Namespace struct {
	keeper *exec.Cmd
	stdin  io.Closer
	veth   string // the host's end
}

// most is the number of namespaces of a network, and blocks that of networks of a process at a
// time: each has a block of addresses.
const (
	most   = 6
	blocks = 31
)

// made counts the networks of this process.
var made atomic.Uint32

// New makes n network namespaces, at most 6. It fails if the system does not allow
// them. A process may have 31 networks at a time.
func New(n int) (*Network, error) {
	if n > most {
		return nil, fmt.Errorf("%d network namespaces: at most %d can be joined", n, most)
	}
	block := int(made.Add(1)-1) % blocks
	// 198.18.0.0/15 is set aside for tests of networks (RFC 2544).
	address := func(i int) string { return fmt.Sprintf("198.18.%d.%d", os.Getpid()%250, 8*block+1+i) }
	h := &Network{Host: address(0)}
	for i := range n {
		ns, err := newNamespace(fmt.Sprintf("slc%d-%d", os.Getpid(), 8*block+i), h.Host, address(i+1))
		if err != nil {
			return nil, errors.Join(err, h.Close())
		}
		h.Namespaces = append(h.Namespaces, ns)
	}
	return h, nil
}

func newNamespace(cable, host, address string) (_ *Namespace, err error) {
	n := &Namespace{keeper: exec.Command("sh", "-c", "read -r _"), veth: cable}
	in, err := n.keeper.StdinPipe()
	if err != nil {
		return nil, err
	}
	n.stdin = in
	n.keeper.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Setpgid: true}
	if err := n.keeper.Start(); err != nil {
		in.Close()
		return nil, fmt.Errorf("create a network namespace: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.Close())
		}
	}()
	pid := fmt.Sprint(n.keeper.Process.Pid)
	for _, args := range [][]string{
		{"ip", "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", pid},
		{"ip", "address", "add", host, "peer", address, "dev", cable},
		{"ip", "link", "set", cable, "up"},
		n.Inside("ip", "address", "add", address, "peer", host, "dev", "eth0"),
		n.Inside("ip", "link", "set", "eth0", "up"),
		n.Inside("ip", "link", "set", "lo", "up"),
	} {
		if err := command(args...); err != nil {
			return nil, fmt.Errorf("connect a network namespace: %w", err)
		}
	}
	return n, nil
}

func command(args ...string) error {
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}

// Inside returns a command that runs in the namespace. It execs the program.
func (n *Namespace) Inside(args ...string) []string {
	return append([]string{"nsenter", fmt.Sprintf("--net=/proc/%d/ns/net", n.keeper.Process.Pid)}, args...)
}

// Do runs fn on a thread that is in the namespace: the sockets that fn opens belong to it.
func (n *Namespace) Do(fn func() error) error {
	inside, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", n.keeper.Process.Pid))
	if err != nil {
		return err
	}
	defer inside.Close()
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocks it: the thread ends with the goroutine
		if err := unix.Setns(int(inside.Fd()), unix.CLONE_NEWNET); err != nil {
			result <- os.NewSyscallError("setns", err)
			return
		}
		result <- fn()
	}()
	return <-result
}

// Unplug takes the host's end of the cable down: packets are lost without an error.
func (n *Namespace) Unplug() error { return command("ip", "link", "set", n.veth, "down") }

// Plug ends an Unplug.
func (n *Namespace) Plug() error { return command("ip", "link", "set", n.veth, "up") }

// Close removes the namespace, in which no process may run any more, and with it
// its cable.
func (n *Namespace) Close() error { return errors.Join(n.stdin.Close(), ignoreExit(n.keeper.Wait())) }

// ignoreExit returns nil for the exit status of a process that was killed or has
// finished its work.
func ignoreExit(err error) error {
	var status *exec.ExitError
	if errors.As(err, &status) {
		return nil
	}
	return err
}

func (h *Network) Close() error {
	var errs []error
	for _, ns := range h.Namespaces {
		errs = append(errs, ns.Close())
	}
	return errors.Join(errs...)
}
