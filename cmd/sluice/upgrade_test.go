package main_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-go/sluice/cmd/sluice/internal/history"
	"github.com/sluice-go/sluice/internal/proof/built"
	"github.com/sluice-go/sluice/internal/proof/need"
)

// otherRevision returns the binary to upgrade from: SLUICE_UPGRADE_BINARY, or what is built of the
// revision SLUICE_UPGRADE_FROM of this repository.
func otherRevision(t *testing.T) string {
	t.Helper()
	need.RealTime(t)
	if os.Getenv("SLUICE_UPGRADE_BINARY") == "" && os.Getenv("SLUICE_UPGRADE_FROM") == "" {
		t.Skip("upgrades from an earlier revision: make soak runs it, and so does " + howToUpgrade)
	}
	path, err := buildRevision()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

const howToUpgrade = "SLUICE_UPGRADE_FROM=REVISION, or SLUICE_UPGRADE_BINARY=PATH, go test ./cmd/sluice -run TestUpgrade -v"

var buildRevision = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("SLUICE_UPGRADE_BINARY"); path != "" {
		return filepath.Abs(path)
	}
	revision := os.Getenv("SLUICE_UPGRADE_FROM")
	if err := exec.Command("git", "cat-file", "-e", revision+"^{commit}").Run(); err != nil {
		return "", fmt.Errorf("this checkout has no revision %s (a shallow clone, or no repository): git fetch --unshallow, or %s", revision, howToUpgrade)
	}
	id, err := exec.Command("git", "rev-parse", revision+"^{commit}").Output() // the clone has no branches of this checkout
	if err != nil {
		return "", err
	}
	dir, err := built.Dir()
	if err != nil {
		return "", err
	}
	source, path := filepath.Join(dir, "source"), filepath.Join(dir, "sluice-before")
	for _, args := range [][]string{{"git", "clone", "--quiet", "--shared", "--no-checkout", "../..", source}, {"git", "-C", source, "checkout", "--quiet", strings.TrimSpace(string(id))}} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("%v: %w\n%s", args, err, out)
		}
	}
	build := exec.Command("go", "build", "-o", path, "./cmd/sluice")
	build.Dir = source
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build revision %s: %w\n%s", revision, err, out)
	}
	return path, nil
})

// newKeys is a replacement in an example: a key that an earlier revision does not know is an error
// to it.
var newKeys = []string{`timestamp, format: "yyyy/MM/dd HH:mm", zone: UTC,`, "text,"}

// upgrade replaces processes under load. A step waits until more effects are there than before.
type upgrade struct {
	t       *testing.T
	env     []string
	config  string
	effects func() int64
	logs    map[*process]string // the path of each process's history
}

func (u *upgrade) run(program string, more ...string) *process {
	u.t.Helper()
	path := filepath.Join(u.t.TempDir(), "history.jsonl")
	p := startCommand(u.t, "", u.env, nil, exec.Command(program, append([]string{"run", u.config, "--history", path}, more...)...))
	u.logs[p] = path
	return p
}

// more waits for effects, by whichever process.
func (u *upgrade) more(step string) {
	u.t.Helper()
	n := u.effects()
	await(u.t, step, func() bool { return u.effects() > n+200 })
}

// works waits until a process commits.
func (u *upgrade) works(p *process, step string) {
	u.t.Helper()
	await(u.t, step, func() bool {
		select {
		case <-p.done:
			u.t.Fatalf("%s: %s", step, p.err.String())
		default:
		}
		text, _ := os.ReadFile(u.logs[p])
		return strings.Contains(string(text), string(history.Committed))
	})
}

// andBack replaces two processes of an earlier revision, one after the other, by this one, which
// migrates what the other still works on; one is killed; then they are replaced by the earlier
// revision again, until that has caught up with what was sent.
func (u *upgrade) andBack(old string, sending *process) {
	t := u.t
	t.Helper()
	a, b := u.run(old), u.run(old)
	u.works(a, "the old revision to work")
	u.works(b, "the old revision to work, second process")
	u.more("effects of the old revision")
	a.stop()
	c := u.run(program.Path(t)) // migrates
	u.works(c, "the new revision to work beside the old one")
	u.more("effects of both")
	b.stop()
	d := u.run(program.Path(t))
	u.works(d, "the new revision to work")
	c.kill()
	u.more("effects of the new revision, after a kill")
	e := u.run(old) // back
	u.works(e, "the old revision to work on what the new one has migrated")
	u.more("effects of both, on the way back")
	d.stop()
	u.more("effects of the old revision again")
	if code := sending.wait(); code != 0 {
		t.Fatalf("send: exit code %d\n%s", code, sending.err.String())
	}
	end := u.run(old, "--until-caught-up")
	if code := end.wait(); code != 0 {
		t.Fatalf("the old revision at the end: exit code %d\n%s", code, end.err.String())
	}
	e.stop()
}

// commits counts the commits in the histories, whose records check gets.
func (u *upgrade) commits(check func(history.Record)) (n int) {
	u.t.Helper()
	for _, path := range u.logs {
		file, err := os.Open(path)
		if err != nil {
			u.t.Fatal(err)
		}
		err = history.Read(file, func(r history.Record) {
			check(r)
			if r.Kind == history.Committed {
				n++
			}
		})
		file.Close()
		if err != nil {
			u.t.Errorf("%s: %v", path, err)
		}
	}
	return n
}

// TestUpgrade: each event has one row or one dead letter, and the histories of all owners are free
// of faults.
func TestUpgrade(t *testing.T) {
	old := otherRevision(t)
	eachDatabase(t, func(t *testing.T, url string) {
		_, connection := serve(t, 4)
		db := openDatabase(t, url)
		u := &upgrade{t, environment(connection, url, "PARTITIONS=balanced"), changed(t, append(shortLease(url), newKeys...)...), func() int64 { return count(t, db, countRows) }, map[*process]string{}}
		lines := make([]string, 0, 6000)
		for i, record := range flights20k(t)[:5900] {
			if lines = append(lines, string(record)); i%59 == 0 {
				lines = append(lines, spoiled(1)...)
			}
		}
		u.andBack(old, start(t, "", u.env, "send", "--hub", "flights", "--rate", "100", writeLines(t, lines)))

		_, dead := deadLetters(t, u.env, u.config)
		if len(dead) != 100 {
			need.Verdict(t)
			t.Errorf("%d dead letters, want 100", len(dead))
		}
		exactlyOnce(t, lookAt(t, connection).events(), rows(t, db), dead)
		var check history.Checker
		commits := u.commits(check.Add)
		if found := check.Findings(0); len(found) > 0 {
			need.Verdict(t)
			t.Errorf("the histories: %v", found)
		}
		t.Logf("%d events, %d commits of %d processes", len(lines), commits, len(u.logs))
	})
}
