//go:build unix

package main_test

import (
	"io/fs"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Other users of the machine can read nothing of what the program writes, whatever the
// umask: data, logs, hubs, databases, histories and reports. Certificates are public.
func TestFilesAreForTheirOwner(t *testing.T) {
	dir := t.TempDir()
	run := func(ends bool, args ...string) *process {
		t.Helper()
		cmd := exec.Command("sh", append([]string{"-c", `umask 0; exec "$0" "$@"`, program.Path(t)}, args...)...)
		p := startCommand(t, dir, nil, nil, cmd)
		if ends {
			if code := p.wait(); code != 0 {
				t.Fatalf("sluice %s: exit code %d\n%s", strings.Join(args, " "), code, p.err.String())
			}
		}
		return p
	}
	run(true, "demo", "--once", "--events", "100", "--data", "demo")
	run(true, "demo", "stages", "--once", "--events", "100", "--data", "stages")
	run(true, "demo", "cosmos", "--once", "--events", "100", "--ru", "100000", "--data", "cosmos")
	p := run(false, "emulator", "serve", "--data", "hub", "--hub", "flights=2", "--listen", "127.0.0.1:0", "--tls-listen", "127.0.0.1:0", "--tls-cert-out", "cert.pem")
	await(t, "the emulator", func() bool {
		return strings.Contains(p.out.String()+p.err.String(), "cert.pem") || strings.Contains(p.out.String()+p.err.String(), "Endpoint=")
	})
	p.stop()
	seen := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		seen++
		if mode := info.Mode().Perm(); mode&0o077 != 0 && filepath.Base(path) != "cert.pem" {
			t.Errorf("%s has the mode %v", strings.TrimPrefix(path, dir), info.Mode())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen < 30 {
		t.Errorf("%d files: this shows nothing", seen)
	}
}
