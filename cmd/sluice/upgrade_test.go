package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/cmd/sluice/internal/history"
)

// otherRevision returns the binary to upgrade from: SLUICE_UPGRADE_BINARY, or what is built of the revision
// SLUICE_UPGRADE_FROM of this repository. It skips the test if there is neither, or no such revision.
func otherRevision(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("SLUICE_UPGRADE_BINARY"); path != "" {
		return path
	}
	const how = "SLUICE_UPGRADE_FROM=REVISION, or SLUICE_UPGRADE_BINARY=PATH, go test -tags postgres ./cmd/sluice -run 'TestUpgrade$' -v"
	revision := os.Getenv("SLUICE_UPGRADE_FROM")
	if revision == "" {
		t.Skip("left out: the upgrade from another revision, which takes minutes: " + how)
	}
	if err := exec.Command("git", "cat-file", "-e", revision+"^{commit}").Run(); err != nil {
		t.Skipf("left out: this checkout has no revision %s (a shallow clone, or no repository): git fetch --unshallow, or %s", revision, how)
	}
	dir := t.TempDir()
	source, path := filepath.Join(dir, "source"), filepath.Join(dir, "sluice")
	for _, args := range [][]string{{"git", "clone", "--quiet", "--shared", "--no-checkout", "../..", source}, {"git", "-C", source, "checkout", "--quiet", revision}} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	build := exec.Command("go", "build", "-o", path, "./cmd/sluice")
	build.Dir = source
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build revision %s: %v\n%s", revision, err, out)
	}
	return path
}

// TestUpgrade: under load, two processes of an earlier revision are replaced one after the other by this one, which
// migrates the tables while the other still works on them; one is killed; then they are replaced by the earlier
// revision again. Each event has one row or one dead letter, and the histories of all owners are free of faults.
func TestUpgrade(t *testing.T) {
	old := otherRevision(t)
	eachFastDatabase(t, func(t *testing.T, url string) {
		_, connection := serve(t, 4)
		env, config, db := environment(connection, url, "PARTITIONS=balanced"), quick(t, url), openDatabase(t, url)
		lines := make([]string, 0, 6000)
		for i, record := range flights20k(t)[:5900] {
			if lines = append(lines, string(record)); i%59 == 0 {
				lines = append(lines, spoiled(1)...)
			}
		}
		paths := map[*process]string{}
		run := func(program string, more ...string) *process {
			path := filepath.Join(t.TempDir(), "history.jsonl")
			p := startCommand(t, "", env, nil, exec.Command(program, append([]string{"run", config, "--history", path}, more...)...))
			paths[p] = path
			return p
		}
		more := func(step string) { // rows, by whichever process
			t.Helper()
			n := count(t, db, countRows)
			await(t, step, func() bool { return count(t, db, countRows) > n+200 })
		}
		works := func(p *process, step string) {
			t.Helper()
			await(t, step, func() bool {
				select {
				case <-p.done:
					t.Fatalf("%s: %s", step, p.err.String())
				default:
				}
				text, _ := os.ReadFile(paths[p])
				return strings.Contains(string(text), string(history.Committed))
			})
		}
		a, b := run(old), run(old)
		sending := start(t, "", env, "send", "--hub", "flights", "--rate", "100", writeLines(t, lines))
		works(a, "the old revision to work")
		works(b, "the old revision to work, second process")
		more("rows of the old revision")
		a.stop()
		c := run(binary) // migrates
		works(c, "the new revision to work beside the old one")
		more("rows of both")
		b.stop()
		d := run(binary)
		works(d, "the new revision to work")
		c.kill()
		more("rows of the new revision, after a kill")
		e := run(old) // back
		works(e, "the old revision to work on the migrated tables")
		more("rows of both, on the way back")
		d.stop()
		more("rows of the old revision again")
		if code := sending.wait(); code != 0 {
			t.Fatalf("send: exit code %d\n%s", code, sending.err.String())
		}
		end := run(old, "--until-caught-up")
		if code := end.wait(); code != 0 {
			t.Fatalf("the old revision at the end: exit code %d\n%s", code, end.err.String())
		}
		e.stop()

		_, dead := deadLetters(t, env, config)
		if len(dead) != 100 {
			t.Errorf("%d dead letters, want 100", len(dead))
		}
		exactlyOnce(t, lookAt(t, connection).events(), rows(t, db), dead)
		var check history.Checker
		commits := 0
		for _, path := range paths {
			file, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			err = history.Read(file, func(r history.Record) {
				check.Add(r)
				if r.Kind == history.Committed {
					commits++
				}
			})
			file.Close()
			if err != nil {
				t.Errorf("%s: %v", path, err)
			}
		}
		if found := check.Findings(0); len(found) > 0 {
			t.Errorf("the histories: %v", found)
		}
		t.Logf("%d events, %d commits of %d processes", len(lines), commits, len(paths))
	})
}
