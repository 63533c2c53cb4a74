//go:build linux

package attack

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// hostNetwork is the host's end of the cables to a number of network namespaces.
type hostNetwork struct {
	host       string // its address, the same on all cables
	namespaces []*netns
}

// netns is a network namespace, joined to the host by one cable (a veth pair). It
// exists as long as the process keeper runs, which ends when its standard input is
// closed, at the latest when this process ends.
type netns struct {
	keeper *exec.Cmd
	stdin  io.Closer
	veth   string // the host's end
}

// newHostNetwork makes n network namespaces. It fails if the system does not allow
// them.
func newHostNetwork(n int) (*hostNetwork, error) {
	// 198.18.0.0/15 is set aside for tests of networks (RFC 2544).
	h := &hostNetwork{host: fmt.Sprintf("198.18.%d.1", os.Getpid()%250)}
	for i := range n {
		ns, err := newNetns(fmt.Sprintf("slc%d-%d", os.Getpid(), i), h.host, strings.TrimSuffix(h.host, "1")+fmt.Sprint(i+2))
		if err != nil {
			return nil, errors.Join(err, h.close())
		}
		h.namespaces = append(h.namespaces, ns)
	}
	return h, nil
}

func newNetns(cable, host, address string) (_ *netns, err error) {
	n := &netns{keeper: exec.Command("sh", "-c", "read -r _"), veth: cable}
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
			err = errors.Join(err, n.close())
		}
	}()
	pid := fmt.Sprint(n.keeper.Process.Pid)
	for _, args := range [][]string{
		{"ip", "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", pid},
		{"ip", "address", "add", host, "peer", address, "dev", cable},
		{"ip", "link", "set", cable, "up"},
		n.inside("ip", "address", "add", address, "peer", host, "dev", "eth0"),
		n.inside("ip", "link", "set", "eth0", "up"),
		n.inside("ip", "link", "set", "lo", "up"),
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

// inside returns a command that runs in the namespace. It execs the program.
func (n *netns) inside(args ...string) []string {
	return append([]string{"nsenter", fmt.Sprintf("--net=/proc/%d/ns/net", n.keeper.Process.Pid)}, args...)
}

// unplug takes the host's end of the cable down: packets are lost without an error.
func (n *netns) unplug() error { return command("ip", "link", "set", n.veth, "down") }

func (n *netns) plug() error { return command("ip", "link", "set", n.veth, "up") }

// close removes the namespace, in which no process may run any more, and with it
// its cable.
func (n *netns) close() error { return errors.Join(n.stdin.Close(), ignoreExit(n.keeper.Wait())) }

// ignoreExit returns nil for the exit status of a process that was killed or has
// finished its work.
func ignoreExit(err error) error {
	var status *exec.ExitError
	if errors.As(err, &status) {
		return nil
	}
	return err
}

func (h *hostNetwork) close() error {
	var errs []error
	for _, ns := range h.namespaces {
		errs = append(errs, ns.close())
	}
	return errors.Join(errs...)
}
