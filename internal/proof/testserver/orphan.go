package testserver

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/internal/proof/need"
)

// orphan is the environment variable that makes a test binary start a server and
// wait to be killed.
const orphan = "TESTSERVER_ORPHAN"

// Orphan must be called first in the TestMain of a package whose tests call
// [Killed]. In the process that Killed starts, it starts a server, prints its
// address, and never returns.
func Orphan(start func() (address string, err error)) {
	if os.Getenv(orphan) == "" {
		return
	}
	address, err := start()
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(address)
	select {}
}

// Killed starts another process of this test binary, calls alive with the address of
// its server, and kills the process. The server must end with it.
func Killed(t *testing.T, alive func(address string)) {
	t.Helper()
	need.RealTime(t)
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
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	alive(strings.TrimSpace(address))
}
