package release

import (
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/internal/proof/need"
)

func TestImage(t *testing.T) {
	need.Release(t)
	archive := artifact(".oci.tar")
	info, err := os.Stat(archive)
	if err != nil || info.Size() > maxImage {
		t.Fatalf("the image has %d bytes, compressed: %v", info.Size(), err)
	}
	t.Logf("the image has %.1f MB, compressed", float64(info.Size())/1e6)
	dir := t.TempDir()
	must(t, "tar", "--extract", "--directory", dir, "--file", archive)
	var index, manifest struct {
		Manifests, Layers []struct{ Digest string }
		Config            struct{ Digest string }
	}
	read := func(digest string, to any) {
		t.Helper()
		path := filepath.Join(dir, "index.json")
		if digest != "" {
			path = filepath.Join(dir, "blobs", strings.Replace(digest, ":", "/", 1))
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, to); err != nil {
			t.Fatal(err)
		}
	}
	read("", &index)
	read(index.Manifests[0].Digest, &manifest)
	var image struct {
		Config struct {
			User, WorkingDir string
			Entrypoint       []string
			Volumes          map[string]any
			Labels           map[string]string
		}
	}
	read(manifest.Config.Digest, &image)
	c := image.Config
	if c.User != "65532:65532" || !slices.Equal(c.Entrypoint, []string{"/usr/bin/sluice"}) || c.WorkingDir != "/var/lib/sluice" || c.Volumes["/var/lib/sluice"] == nil {
		t.Errorf("configuration: %+v", c)
	}
	commit := strings.TrimSpace(must(t, "git", "rev-parse", "HEAD"))
	if l := c.Labels; l["org.opencontainers.image.version"] != "v"+version || l["org.opencontainers.image.revision"] != commit || l["org.opencontainers.image.licenses"] != "Apache-2.0" {
		t.Errorf("labels: %v", c.Labels)
	}
	var files []string
	var licences strings.Builder
	for _, layer := range manifest.Layers {
		blob := filepath.Join(dir, "blobs", strings.Replace(layer.Digest, ":", "/", 1))
		text, _ := output(exec.Command("tar", "--extract", "--to-stdout", "--gzip", "--file", blob, "licenses/THIRD_PARTY_LICENSES")) // one layer has it
		licences.WriteString(text)
		for line := range strings.Lines(must(t, "tar", "--list", "--verbose", "--numeric-owner", "--gzip", "--file", blob)) {
			fields := strings.Fields(line)
			if name := strings.TrimSuffix(fields[len(fields)-1], "/"); !strings.HasPrefix(line, "d") || name == "var/lib/sluice" {
				files = append(files, fields[0]+" "+name)
			}
		}
	}
	slices.Sort(files)
	want := []string{"-rw-r--r-- etc/group", "-rw-r--r-- etc/passwd", "-rw-r--r-- etc/ssl/certs/ca-certificates.crt", "-rw-r--r-- licenses/LICENSE", "-rw-r--r-- licenses/THIRD_PARTY_LICENSES", "-rwxr-xr-x usr/bin/sluice", "drwxrwxrwt var/lib/sluice"}
	if files = slices.Compact(files); !slices.Equal(files, want) {
		t.Errorf("the image has %q, want %q", files, want)
	}
	checkLicences(t, licences.String())
}

// The same binary, version and commit give the same image.
func TestImageIsReproducible(t *testing.T) {
	need.Release(t)
	build := func() string {
		commit := strings.TrimSpace(must(t, "git", "rev-parse", "HEAD"))
		return must(t, "scripts/image", filepath.Join(top, "build/release/bin/sluice"), filepath.Join(t.TempDir(), "image.tar"), "v1.2.3", commit, "1700000000")
	}
	if a, b := build(), build(); a != b || !strings.HasPrefix(a, "sha256:") {
		t.Errorf("digests %s and %s", a, b)
	}
}

// What Docker builds the image from is what buildah builds it from.
func TestImageContext(t *testing.T) {
	need.Release(t)
	dir := filepath.Join(t.TempDir(), "context")
	binary := filepath.Join(top, "build/release/bin/sluice")
	must(t, "scripts/image", "--context", binary, dir)
	var files []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if name := strings.TrimPrefix(path, dir+"/"); err == nil && (!d.IsDir() || name == "rootfs/var/lib/sluice") {
			files = append(files, info.Mode().String()+" "+name)
		}
		return err
	})
	slices.Sort(files)
	want := []string{"-rw-r--r-- rootfs/etc/group", "-rw-r--r-- rootfs/etc/passwd", "-rw-r--r-- rootfs/etc/ssl/certs/ca-certificates.crt", "-rw-r--r-- rootfs/licenses/LICENSE", "-rw-r--r-- rootfs/licenses/THIRD_PARTY_LICENSES", "-rwxr-xr-x rootfs/usr/bin/sluice", "dtrwxrwxrwx rootfs/var/lib/sluice"}
	if err != nil || !slices.Equal(files, want) {
		t.Errorf("the context has %q, want %q: %v", files, want, err)
	}
	must(t, "cmp", binary, filepath.Join(dir, "rootfs/usr/bin/sluice"))
	containerfile, err := os.ReadFile(filepath.Join(top, "packaging/Containerfile"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(containerfile)) {
		if fields := strings.Fields(line); len(fields) > 2 && fields[0] == "COPY" {
			if _, err := os.Stat(filepath.Join(dir, fields[1])); err != nil {
				t.Errorf("%s: %v", strings.TrimSpace(line), err)
			}
		}
	}
	if text, err := output(exec.Command("scripts/image", "--context", filepath.Join(dir, "absent"), t.TempDir())); err == nil || !strings.Contains(err.Error(), "make build") {
		t.Errorf("a binary that does not exist is accepted: %s %v", text, err)
	}
}

var firstCommitted = regexp.MustCompile(`The first event was committed after [0-9.]+m?s`)

// engine is podman with a storage of its own, which has the image.
type engine struct{ dir string }

func loadImage(t *testing.T) engine {
	t.Helper()
	e := engine{t.TempDir()}
	if _, err := output(e.command("pull", "--quiet", "oci-archive:"+artifact(".oci.tar"))); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = output(e.command("rmi", "--all", "--force")) })
	return e
}

func (e engine) command(args ...string) *exec.Cmd {
	return exec.Command("podman", append([]string{"--root", e.dir + "/storage", "--runroot", e.dir + "/run", "--storage-driver", "vfs",
		"--cgroup-manager", "cgroupfs", "--runtime", "runc", "--log-level", "error"}, args...)...)
}

// limits are those of each container: no capability, and a read-only root file system.
var limits = []string{"--read-only", "--read-only-tmpfs=false", "--cap-drop", "all", "--security-opt", "no-new-privileges",
	"--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024", "--network", "host"}

// run runs a command of the image as a user. options are podman's.
func (e engine) run(user string, options []string, args ...string) (string, error) {
	return output(e.command(slices.Concat([]string{"run", "--user", user}, limits, options, []string{"localhost/sluice:v" + version}, args)...))
}

var users = []string{"65532", "12345", "31999:4000"}

// The image runs as any user, without capabilities, on a read-only root file system.
func TestImageRuns(t *testing.T) {
	need.Release(t)
	podman, rm := loadImage(t), []string{"--rm"}
	for _, user := range users {
		text, err := podman.run(user, rm, "demo", "--once", "--events", "1000")
		if err != nil || !strings.Contains(text, "each exactly once") || !firstCommitted.MatchString(text) {
			t.Errorf("as user %s: %v\n%s", user, err, text)
			continue
		}
		t.Logf("as user %s: %s", user, firstCommitted.FindString(text))
	}
	if text, err := podman.run("12345", rm, "demo", "--once", "--data", "/elsewhere"); err == nil || !strings.Contains(err.Error(), "read-only file system") {
		t.Errorf("the root file system can be written: %s %v", text, err)
	}
	if text, err := podman.run("12345", []string{"--rm", "--entrypoint", "/bin/sh"}); err == nil {
		t.Errorf("there is a shell: %s", text)
	}
}
