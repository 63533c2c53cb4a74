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

// hostNetwork is the host's side of the cables to a number of islands.
type hostNetwork struct {
	host       string // its address, the same for all islands
	namespaces []*netns
}

// netns is a network namespace, joined to the host by one cable (a veth pair).
// It lives as long as its keeper, a process that waits for the end of its input
// and so for that of this one.
type netns struct {
	keeper *exec.Cmd
	stdin  io.Closer
	veth   string // the host's end
}

// newHostNetwork makes n islands. It fails where network namespaces are not allowed.
func newHostNetwork(n int) (*hostNetwork, error) {
	// 198.18.0.0/15 is set aside for tests of networks (RFC 2544).
	s := &hostNetwork{host: fmt.Sprintf("198.18.%d.1", os.Getpid()%250)}
	for i := range n {
		is, err := newNetns(fmt.Sprintf("slc%d-%d", os.Getpid(), i), s.host, strings.TrimSuffix(s.host, "1")+fmt.Sprint(i+2))
		if err != nil {
			return nil, errors.Join(err, s.close())
		}
		s.namespaces = append(s.namespaces, is)
	}
	return s, nil
}

func newNetns(cable, host, address string) (_ *netns, err error) {
	is := &netns{keeper: exec.Command("sh", "-c", "read -r _"), veth: cable}
	in, err := is.keeper.StdinPipe()
	if err != nil {
		return nil, err
	}
	is.stdin = in
	is.keeper.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Setpgid: true}
	if err := is.keeper.Start(); err != nil {
		in.Close()
		return nil, fmt.Errorf("make a network namespace: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, is.close())
		}
	}()
	pid := fmt.Sprint(is.keeper.Process.Pid)
	for _, args := range [][]string{
		{"ip", "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", pid},
		{"ip", "address", "add", host, "peer", address, "dev", cable},
		{"ip", "link", "set", cable, "up"},
		is.inside("ip", "address", "add", address, "peer", host, "dev", "eth0"),
		is.inside("ip", "link", "set", "eth0", "up"),
		is.inside("ip", "link", "set", "lo", "up"),
	} {
		if err := command(args...); err != nil {
			return nil, fmt.Errorf("lay a cable to a network namespace: %w", err)
		}
	}
	return is, nil
}

func command(args ...string) error {
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}

// inside is a command in the island's network. It becomes the program it runs.
func (is *netns) inside(args ...string) []string {
	return append([]string{"nsenter", fmt.Sprintf("--net=/proc/%d/ns/net", is.keeper.Process.Pid)}, args...)
}

// unplug pulls the cable: packets vanish, nobody is told.
func (is *netns) unplug() error { return command("ip", "link", "set", is.veth, "down") }

func (is *netns) plug() error { return command("ip", "link", "set", is.veth, "up") }

// close ends the namespace, once no process is in it; its cable goes with it.
func (is *netns) close() error { return errors.Join(is.stdin.Close(), ignoreExit(is.keeper.Wait())) }

// ignoreExit drops the exit status of a process that has done its duty.
func ignoreExit(err error) error {
	var status *exec.ExitError
	if errors.As(err, &status) {
		return nil
	}
	return err
}

func (s *hostNetwork) close() error {
	var errs []error
	for _, is := range s.namespaces {
		errs = append(errs, is.close())
	}
	return errors.Join(errs...)
}
