package testserver

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// orphan makes a test binary start a server and wait to be killed.
const orphan = "TESTSERVER_ORPHAN"

// Orphan goes first in the TestMain of a package whose tests call [Killed]. In
// the process that they start it starts a server, says where that is, and never
// returns.
func Orphan(start func() (said string, err error)) {
	if os.Getenv(orphan) == "" {
		return
	}
	said, err := start()
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(said)
	select {}
}

// Killed starts another process of this test binary, hands what it says of its
// server to alive, and kills it: the server must not outlive it.
func Killed(t *testing.T, alive func(said string)) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), orphan+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	said, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	alive(strings.TrimSpace(said))
}
