package release

import (
	"archive/zip"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/internal/proof/need"
)

const (
	library = "github.com/sluice-go/sluice"
	tagged  = "v0.0.1-test"
)

// TestTaggedModules tags a copy of this tree as a release does, and uses its modules from outside
// of the repository: each by itself, and the program by go install.
func TestTaggedModules(t *testing.T) {
	need.RealTime(t)
	user := newUser(t)

	small := user.program("small", "", "/eventhub", "/pgstore")
	compiled := user.run(small, "go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", ".")
	modules := slices.Compact(slices.Sorted(strings.FieldsSeq(compiled)))
	t.Logf("a program of the root, eventhub and pgstore compiles packages of %d modules: %s", len(modules), strings.Join(modules, " "))
	for _, m := range modules {
		if !slices.ContainsFunc(smallModules, func(prefix string) bool { return m == prefix || strings.HasPrefix(m, prefix+"/") }) {
			t.Errorf("it compiles %s: do without, or add it to smallModules", m)
		}
	}
	user.run(small, "go", "build", "-o", os.DevNull, ".")

	for _, path := range []string{"/audit", "/autoscale", "/autoscale/config", "/emulator", "/kafka", "/pipeline", "/pipeline/web", "/sluiceotel", "/storetest"} {
		user.program(strings.ReplaceAll(path[1:], "/", "-"), path)
	}

	user.run(small, "go", "install", library+"/cmd/sluice@"+tagged)
	if text := user.run(small, filepath.Join(user.bin, "sluice"), "version"); !strings.HasPrefix(text, "sluice "+tagged+" ") {
		t.Errorf("installed: %s", text)
	}
}

// smallModules are the modules that a program with the root, eventhub and pgstore compiles.
var smallModules = []string{
	library, "example.com/small", "github.com/Azure/azure-sdk-for-go/sdk/azcore", "github.com/Azure/azure-sdk-for-go/sdk/internal",
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2", "github.com/Azure/go-amqp", "github.com/coder/websocket",
	"github.com/jackc", "golang.org/x",
}

// user is somebody with programs that require the modules of a release.
type user struct {
	t        *testing.T
	dir, bin string
	env      []string
}

// newUser makes the release and a proxy that serves it.
func newUser(t *testing.T) *user {
	t.Helper()
	dir := t.TempDir()
	u := &user{t: t, dir: dir, bin: filepath.Join(dir, "bin")}
	source, err := filepath.Abs("../../../../..")
	if err != nil {
		t.Fatal(err)
	}
	release, proxy, cache := filepath.Join(dir, "release"), filepath.Join(dir, "proxy"), strings.TrimSpace(u.run(source, "go", "env", "GOMODCACHE"))
	elsewhere := strings.TrimSpace(u.run(source, "go", "env", "GOPROXY")) // for what no build of the workspace needs, such as go.mod files
	for name := range strings.SplitSeq(strings.TrimRight(u.run(source, "git", "ls-files", "-co", "--exclude-standard", "-z"), "\x00"), "\x00") {
		u.copy(filepath.Join(source, name), filepath.Join(release, name))
	}
	for _, role := range []string{"AUTHOR", "COMMITTER"} {
		u.env = append(u.env, "GIT_"+role+"_NAME=release", "GIT_"+role+"_EMAIL=release@localhost")
	}
	u.run(release, "git", "init", "-q")
	u.run(release, "git", "add", "--all")
	u.run(release, "git", "commit", "-q", "-m", "release")
	u.run(release, "scripts/tag-release", tagged)
	for tag := range strings.FieldsSeq(u.run(release, "git", "tag")) {
		u.publish(release, proxy, strings.TrimSuffix(strings.TrimSuffix(tag, tagged), "/"))
	}
	u.shareModules(cache, filepath.Join(dir, "modules"))
	u.env = append(u.env, "GOWORK=off", "GOFLAGS=-trimpath -mod=mod -modcacherw", "GOBIN="+u.bin,
		"GOMODCACHE="+filepath.Join(dir, "modules"), "GOPROXY=file://"+proxy+",file://"+cache+"/cache/download,"+elsewhere, "GOSUMDB=off")
	return u
}

// run runs a command in a directory, and returns what it prints.
func (u *user) run(dir, name string, args ...string) string {
	u.t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), u.env...)
	if strings.Contains(name, "/") && !filepath.IsAbs(name) {
		cmd.Path = filepath.Join(dir, name)
	}
	text, err := output(cmd)
	if err != nil {
		u.t.Fatal(err)
	}
	return text
}

// program makes a program that imports packages of the release, in a module of its own.
func (u *user) program(name string, paths ...string) (dir string) {
	u.t.Helper()
	dir = filepath.Join(u.dir, "programs", name)
	var imports strings.Builder
	for _, path := range paths {
		imports.WriteString("\t_ \"" + library + path + "\"\n")
	}
	u.write(filepath.Join(dir, "go.mod"), "module example.com/"+name+"\n\ngo 1.26.0\n\nrequire "+library+" "+tagged+"\n")
	u.write(filepath.Join(dir, "main.go"), "package main\n\nimport (\n"+imports.String()+")\n\nfunc main() {}\n")
	u.run(dir, "go", "list", "-deps", ".") // with -mod=mod, so it completes go.mod and go.sum
	text, err := os.ReadFile(filepath.Join(dir, "go.sum"))
	if err != nil {
		u.t.Fatal(err)
	}
	graph := strings.Fields(u.run(dir, "go", "list", "-m", "-f", "{{.Path}}", "all"))
	u.t.Logf("%s: %d modules in its graph, %d lines in its go.sum", name, len(graph), strings.Count(string(text), "\n"))
	return dir
}

// publish adds the module in a directory of the release to a proxy.
func (u *user) publish(release, proxy, dir string) {
	u.t.Helper()
	module := path.Join(library, dir)
	versions := filepath.Join(proxy, filepath.FromSlash(module), "@v")
	u.write(filepath.Join(versions, "list"), tagged+"\n")
	u.write(filepath.Join(versions, tagged+".info"), `{"Version":"`+tagged+`"}`)
	u.copy(filepath.Join(release, dir, "go.mod"), filepath.Join(versions, tagged+".mod"))
	file, err := os.Create(filepath.Join(versions, tagged+".zip"))
	if err != nil {
		u.t.Fatal(err)
	}
	defer file.Close()
	archive := zip.NewWriter(file)
	top := filepath.Join(release, dir)
	err = filepath.WalkDir(top, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if _, err := os.Stat(filepath.Join(name, "go.mod")); name != top && err == nil || entry.Name() == ".git" {
				return fs.SkipDir // another module
			}
			return nil
		}
		below, err := filepath.Rel(top, name)
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		w, err := archive.Create(module + "@" + tagged + "/" + filepath.ToSlash(below))
		if err == nil {
			_, err = w.Write(text)
		}
		return err
	})
	if err == nil {
		err = archive.Close()
	}
	if err != nil {
		u.t.Fatal(err)
	}
}

// shareModules makes a cache of modules that has those of another, except ours: what this test
// publishes is in no cache but its own.
func (u *user) shareModules(cache, own string) {
	u.t.Helper()
	above := []string{".", "github.com", "cache", "cache/download", "cache/download/github.com"}
	for _, dir := range above {
		if err := os.MkdirAll(filepath.Join(own, dir), 0o755); err != nil {
			u.t.Fatal(err)
		}
		entries, err := os.ReadDir(filepath.Join(cache, dir))
		if err != nil && !os.IsNotExist(err) {
			u.t.Fatal(err)
		}
		for _, entry := range entries {
			name := path.Join(dir, entry.Name())
			if slices.Contains(above, name) || entry.Name() == path.Base(path.Dir(library)) {
				continue
			}
			if err := os.Symlink(filepath.Join(cache, name), filepath.Join(own, name)); err != nil {
				u.t.Fatal(err)
			}
		}
	}
}

func (u *user) copy(from, to string) {
	u.t.Helper()
	info, err := os.Lstat(from)
	if os.IsNotExist(err) || err == nil && !info.Mode().IsRegular() {
		return // deleted, or a link
	}
	text, err := os.ReadFile(from)
	if err != nil {
		u.t.Fatal(err)
	}
	u.write(to, string(text))
	if err := os.Chmod(to, info.Mode().Perm()); err != nil {
		u.t.Fatal(err)
	}
}

func (u *user) write(name, text string) {
	u.t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		u.t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		u.t.Fatal(err)
	}
}
