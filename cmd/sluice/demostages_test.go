package main_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/internal/proof/need"
)

const everyRow = ", and every row is the one computed directly from the flights."

func TestDemoStagesOnce(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "the demo's data")
	out := endDemo(t, "", "demo", "stages", "--data", dir)
	if !strings.Contains(out, "20,000 = 19,980 + 20"+everyRow) {
		t.Errorf("it says\n%s", out)
	}
	config := filepath.Join(dir, "stages.yaml")
	if letters, _ := deadLetters(t, nil, config, "--stage", "clean"); len(letters) != 20 || !strings.Contains(letters[0].Error, "field delay: body.delay: is missing") {
		t.Errorf("dead letters %+v", letters)
	}
}

func TestDemoStagesKilledAtAnyMomentGoesOn(t *testing.T) {
	t.Parallel()
	r := need.Rand(t)
	dir := t.TempDir()
	args := []string{"demo", "stages", "--data", dir, "--events", "30000"}
	for range 6 {
		p := start(t, "", nil, args...)
		moment := time.NewTimer(time.Duration(r.Int64N(int64(2 * time.Second))))
		select {
		case <-moment.C:
			p.kill()
		case <-p.done:
			t.Fatal("it has ended by itself")
		}
	}
	if out := endDemo(t, "", args...); !strings.Contains(out, everyRow) {
		t.Errorf("it says\n%s", out)
	}
}

func TestDemoStagesInterruptedEndsWell(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := start(t, "", nil, "demo", "stages", "--data", dir, "--events", "1000")
	db := openDatabase(t, "sqlite:"+filepath.Join(dir, "stages.db"))
	await(t, "more than was asked for at once", func() bool {
		return strings.Contains(p.out.String(), "runs until you press") && count(t, db, "SELECT coalesce(sum(flights), 0) FROM airports") > 1000
	})
	p.signal(os.Interrupt)
	if code := p.wait(); code != 0 || !strings.Contains(p.out.String(), "flights in the first hub") {
		t.Errorf("exit code %d:\n%s", code, p.out.String())
	}
}

func TestDemoStagesNoticesWhatIsNotExact(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ spoil, want string }{
		"row missing": {"DELETE FROM airports WHERE airport = 'SAN'", "SAN at "},
		"row of none": {"INSERT INTO airports VALUES ('XXX', '2001-01-01T00:00:00Z', 1, 2, 3, 1)", "XXX at 2001-01-01T00:00:00Z: the row says 1 flights, 2 minutes, 3 at worst; there were 0, 0, 0"},
		"row changed": {"UPDATE airports SET delay = delay + 1 WHERE airport = 'OAK'", "OAK at "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			// Figures come again at every start: a trigger spoils them for good.
			db := openDatabase(t, "sqlite:"+filepath.Join(dir, "stages.db"))
			for _, statement := range []string{
				"CREATE TABLE airports (airport TEXT, hour TEXT, flights INTEGER, delay INTEGER, worst INTEGER, version INTEGER, PRIMARY KEY (airport, hour))",
				fmt.Sprintf("CREATE TRIGGER spoil AFTER INSERT ON airports WHEN NOT EXISTS (SELECT 1 FROM airports WHERE airport = 'XXX') BEGIN %s; END", c.spoil),
				fmt.Sprintf("CREATE TRIGGER again AFTER UPDATE OF flights ON airports WHEN NOT EXISTS (SELECT 1 FROM airports WHERE airport = 'XXX') BEGIN %s; END", c.spoil),
			} {
				if _, err := db.ExecContext(t.Context(), statement); err != nil {
					t.Fatal(err)
				}
			}
			code, out, errs := invoke(t, "", nil, "demo", "stages", "--once", "--events", "500", "--data", dir)
			if code != 1 || !strings.Contains(errs, "sluice: the table differs from the one computed from the flights: ") || !strings.Contains(errs, c.want) || strings.Contains(out, "every row") {
				t.Errorf("exit code %d:\n%s%s", code, out, errs)
			}
		})
	}
}
