package datasets

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-go/sluice/cmd/sluice/internal/newfile"
	"github.com/sluice-go/sluice/cmd/sluice/internal/records"
	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/internal/proof/built"
	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/pipeline"
)

var program = built.Main("github.com/sluice-go/sluice/cmd/sluice")

func TestMain(m *testing.M) { os.Exit(built.Run(m)) }

// most is how many records of a data set are tried.
const most = 20_000

// TestInitWritesFilesThatRun takes what sluice init writes for each data set as it is: every record
// becomes a row, and none a dead letter.
func TestInitWritesFilesThatRun(t *testing.T) {
	need.Datasets(t)
	var run atomic.Int64
	t.Run("set", func(t *testing.T) {
		for _, d := range datasets {
			t.Run(strings.TrimSuffix(filepath.Base(d.file), filepath.Ext(d.file)), func(t *testing.T) {
				t.Parallel()
				if try(t, d); !t.Failed() {
					run.Add(1)
				}
			})
		}
	})
	t.Logf("%d of %d files run without an edit", run.Load(), len(datasets))
}

func try(t *testing.T, d dataset) {
	dir := t.TempDir()
	sample, n := head(t, d.path(t), dir)
	name := newfile.Name(strings.TrimSuffix(filepath.Base(sample), filepath.Ext(sample)))
	hub, err := emulator.Start([]emulator.Hub{{Name: name, Partitions: 4}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer hub.Close()
	command := func(args ...string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, program.Path(t), args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "EVENTHUB_CONNECTION_STRING="+hub.ConnectionString())
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("sluice %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	file := filepath.Join(dir, name+".yaml")
	report := command("init", file, "--sample", sample)
	if !strings.Contains(report, "none becomes a dead letter") {
		t.Errorf("init:\n%s", report)
	}
	command("check", file, "--connect")
	command("send", "--hub", name, sample)
	command("run", file, "--until-caught-up", "--within", "90s")
	if text := command("deadletters", "list", "--config", file); !strings.Contains(text, "no dead letters") {
		t.Errorf("dead letters:\n%s", text)
	}
	db, err := pipeline.OpenReader("sqlite:" + filepath.Join(dir, name+".db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var rows int
	if err := db.QueryRow(fmt.Sprintf("SELECT count(*) FROM %q", name)).Scan(&rows); err != nil || rows != n {
		t.Errorf("%d rows of %d records, %v", rows, n, err)
	}
	for _, column := range columnsOf(t, db, name) {
		var values int
		if err := db.QueryRow(fmt.Sprintf("SELECT count(%q) FROM %q", column, name)).Scan(&values); err != nil || values == 0 {
			t.Errorf("column %s has %d values, %v", column, values, err)
		}
	}
}

func columnsOf(t *testing.T, db *sql.DB, table string) []string {
	t.Helper()
	rows, err := db.Query(fmt.Sprintf("SELECT * FROM %q LIMIT 0", table))
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// path is where scripts/install-datasets has put a data set.
func (d dataset) path(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		path := filepath.Join(dir, ".dev", "datasets", "node_modules", d.pkg, d.file)
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	t.Fatalf("%s of %s is missing: run scripts/install-datasets", d.file, d.pkg)
	return ""
}

// head returns a data set with at most so many records, and how many. A smaller one is the file
// itself.
func head(t *testing.T, path, dir string) (string, int) {
	t.Helper()
	in, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	reader := records.NewReader(in, path, nil)
	var lines bytes.Buffer
	for n := 0; n < most; n++ {
		r, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return path, n
		}
		if err != nil {
			t.Fatal(err)
		}
		lines.Write(append(bytes.ReplaceAll(r.Body, []byte("\n"), nil), '\n'))
	}
	name := strings.TrimSuffix(filepath.Base(path), filepath.Ext(path)) + ".ndjson"
	short := filepath.Join(dir, name)
	if err := os.WriteFile(short, lines.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return short, most
}
