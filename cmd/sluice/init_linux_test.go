package main_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// terminal opens a pseudo-terminal: what is written to the first file, a program reads from the
// second.
func terminal(t *testing.T) (keyboard, tty *os.File) {
	t.Helper()
	keyboard, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = keyboard.Close() })
	fd := int(keyboard.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tty.Close() })
	return keyboard, tty
}

// On a terminal init asks; it writes nothing if the answers end, and overwrites nothing.
func TestInitOnATerminal(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "flights.yaml")
	run := func(answers string, args ...string) (code int, errs string) {
		keyboard, tty := terminal(t)
		if _, err := keyboard.WriteString(answers); err != nil {
			t.Fatal(err)
		}
		p := startCommand(t, "", nil, tty, exec.Command(program.Path(t), append([]string{"init", path}, args...)...))
		code = p.wait()
		return code, p.err.String()
	}
	if code, errs := run("kafka\n\x04"); code != 1 || !strings.Contains(errs, "no answer: nothing was written") {
		t.Errorf("exit code %d: %s", code, errs)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("a file was written without answers")
	}
	if code, errs := run("kafak\nkafka\n\n", "--target", "http", "--partitions", "all"); code != 0 || !strings.Contains(errs, "Where do events come from? (eventhub, kafka) [eventhub] ") {
		t.Errorf("exit code %d: %s", code, errs)
	}
	before, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(before), "kafka:") || !strings.Contains(string(before), "http:") {
		t.Fatalf("%s, %v", before, err)
	}
	if code, errs := run("\n\n\n\n"); code != 1 || !strings.Contains(errs, path+" exists already: name another file, or pass --force") {
		t.Errorf("exit code %d: %s", code, errs)
	}
	if after, err := os.ReadFile(path); err != nil || string(after) != string(before) {
		t.Errorf("it was overwritten: %s, %v", after, err)
	}
}
