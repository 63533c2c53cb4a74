package release

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/internal/proof/need"
)

// installed are the files of both packages, with their modes.
var installed = map[string]string{
	"/usr/bin/sluice":                                  "-rwxr-xr-x",
	"/etc/sluice/README":                               "-rw-r--r--",
	"/usr/lib/systemd/system/sluice@.service":          "-rw-r--r--",
	"/usr/share/man/man1/sluice.1.gz":                  "-rw-r--r--",
	"/usr/share/man/man1/sluice-run.1.gz":              "-rw-r--r--",
	"/usr/share/bash-completion/completions/sluice":    "-rw-r--r--",
	"/usr/share/fish/vendor_completions.d/sluice.fish": "-rw-r--r--",
}

// checkModes compares a listing with installed, and with the files that only this package has.
func checkModes(t *testing.T, listing string, more ...string) {
	t.Helper()
	modes := map[string]string{}
	for line := range strings.Lines(listing) {
		fields := strings.Fields(line)
		modes["/"+strings.TrimLeft(fields[len(fields)-1], "./")] = fields[0]
		if !strings.Contains(line, " root") {
			t.Errorf("not root's: %s", line)
		}
	}
	all := maps.Clone(installed)
	for _, path := range more {
		all[path] = "-rw-r--r--"
	}
	for path, want := range all {
		if modes[path] != want {
			t.Errorf("%s has the mode %q, want %q", path, modes[path], want)
		}
	}
}

// next makes the package of a newer version.
func next(t *testing.T, format string) string {
	t.Helper()
	dir := t.TempDir()
	config := filepath.Join(dir, "nfpm.yaml")
	if err := os.WriteFile(config, []byte(must(t, "scripts/nfpm-config", "0.0.2", runtime.GOARCH, "build/release/bin/sluice")), 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "next."+format)
	must(t, ".dev/release/venv/bin/nfpm", "package", "--config", config, "--packager", format, "--target", path)
	return path
}

// checkLife installs a package below a directory, upgrades and removes it: what an operator
// and the service have written stays, unchanged.
func checkLife(t *testing.T, root string, install, upgrade, remove []string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Log("not root: the package was not installed")
		return
	}
	must(t, install[0], install[1:]...)
	must(t, filepath.Join(root, "usr/bin/sluice"), "help")
	kept := map[string]string{"etc/sluice/flights.yaml": "pipeline", "etc/sluice/flights.env": "secrets", "var/lib/private/sluice/flights/flights.db": "state"}
	for name, text := range kept {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, command := range [][]string{upgrade, remove} {
		must(t, command[0], command[1:]...)
		for name, want := range kept {
			path := filepath.Join(root, name)
			info, err := os.Stat(path)
			if err != nil || info.Mode() != 0o600 {
				t.Errorf("after %q: %s: %v, %v", command, name, info, err)
			}
			if text, _ := os.ReadFile(path); string(text) != want {
				t.Errorf("after %q: %s holds %q", command, name, text)
			}
		}
	}
	for path := range installed {
		if _, err := os.Stat(filepath.Join(root, path)); err == nil {
			t.Errorf("%s is still there after the package was removed", path)
		}
	}
}

func TestDeb(t *testing.T) {
	need.Release(t)
	deb := one(t, "*.deb")
	checkModes(t, must(t, "dpkg-deb", "--contents", deb), "/usr/share/zsh/vendor-completions/_sluice", "/usr/share/doc/sluice/copyright", "/usr/share/doc/sluice/THIRD_PARTY_LICENSES")
	if info := must(t, "dpkg-deb", "--info", deb); !strings.Contains(info, "Architecture: "+runtime.GOARCH) || !strings.Contains(info, "Version: 0.0.1~test") {
		t.Errorf("control: %s", info)
	}
	root := t.TempDir()
	must(t, "dpkg-deb", "--extract", deb, root)
	checkLicences(t, must(t, "cat", filepath.Join(root, "usr/share/doc/sluice/THIRD_PARTY_LICENSES")))
	if v := must(t, filepath.Join(root, "usr/bin/sluice"), "version"); !strings.HasPrefix(v, "sluice v"+version) {
		t.Errorf("version: %s", v)
	}
	admin := t.TempDir()
	dpkg := func(args ...string) []string {
		return append([]string{"dpkg", "--root=" + admin, "--force-not-root", "--force-depends", "--log=/dev/null"}, args...)
	}
	checkLife(t, admin, dpkg("--install", deb), dpkg("--install", next(t, "deb")), dpkg("--purge", "sluice"))
	checkUnit(t, root)
}

// checkUnit checks the unit of a package that was unpacked into a directory.
func checkUnit(t *testing.T, root string) {
	t.Helper()
	unit := "usr/lib/systemd/system/sluice@.service"
	must(t, "install", "-D", "-m", "0644", filepath.Join(root, unit), filepath.Join(root, "lib/systemd/system/sluice@flights.service"))
	problems, _ := exec.Command("systemd-analyze", "--man=no", "--recursive-errors=no", "--root="+root, "verify", "sluice@flights.service").CombinedOutput()
	for line := range strings.Lines(string(problems)) {
		if strings.Contains(line, "sluice@") {
			t.Errorf("systemd-analyze verify: %s", line)
		}
	}
	text, err := os.ReadFile(filepath.Join(root, unit))
	if err != nil {
		t.Fatal(err)
	}
	stop, grace := seconds(t, text, `--stop-timeout (\d+)s`), seconds(t, text, `TimeoutStopSec=(\d+)s`)
	if grace < stop+10*time.Second {
		t.Errorf("systemd kills the service after %v; a stop may take %v and then cancels", grace, stop)
	}
	// net.InterfaceAddrs, by which the dashboard's certificate names the machine's addresses, needs
	// it.
	if !regexp.MustCompile(`(?m)^RestrictAddressFamilies=.*\bAF_NETLINK\b`).Match(text) {
		t.Error("the unit does not allow AF_NETLINK: the dashboard's certificate would lack the machine's addresses")
	}
}

func seconds(t *testing.T, text []byte, expression string) time.Duration {
	t.Helper()
	found := regexp.MustCompile(expression).FindSubmatch(text)
	if found == nil {
		t.Fatalf("the unit lacks %s", expression)
	}
	d, err := time.ParseDuration(string(found[1]) + "s")
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestRPM(t *testing.T) {
	need.Release(t)
	file := one(t, "*.rpm")
	checkModes(t, must(t, "rpm", "-qp", "--nosignature", "--queryformat", "[%{FILEMODES:perms} %{FILEUSERNAME} %{FILENAMES}\n]", file),
		"/usr/share/zsh/site-functions/_sluice", "/usr/share/licenses/sluice/LICENSE", "/usr/share/licenses/sluice/THIRD_PARTY_LICENSES")
	if got := must(t, "rpm", "-qp", "--nosignature", "--queryformat", "%{NAME} %{LICENSE} %{VERSION}", file); got != "sluice Apache-2.0 0.0.1~test" {
		t.Errorf("rpm: %s", got)
	}
	checkLicences(t, must(t, "sh", "-c", `rpm2cpio "$1" | cpio --extract --to-stdout --quiet ./usr/share/licenses/sluice/THIRD_PARTY_LICENSES`, "sh", file))
	root := t.TempDir()
	rpm := func(args ...string) []string {
		return append([]string{"rpm", "--root", root, "--nodeps", "--nosignature", "--force-debian"}, args...)
	}
	checkLife(t, root, rpm("--install", file), rpm("--upgrade", next(t, "rpm")), rpm("--erase", "sluice"))
}
