package check

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/internal/proof/need"
)

// The password of a server's address is a secret, and its names are left out of the report that is
// sent.
func TestServerTargets(t *testing.T) {
	for address, name := range map[string]string{
		"mysql://app:p%40ss@db.example:3306/flights":                              "MySQL db.example:3306/flights, as app",
		"mariadb://app:p%40ss@db.example:3306/flights":                            "MariaDB db.example:3306/flights, as app",
		"sqlserver://app:p%40ss@db.example:1433?database=flights":                 "SQL Server db.example:1433/flights, as app",
		"sqlserver://db.example?database=flights&encrypt=true&credential=default": "SQL Server db.example/flights, as Entra ID",
	} {
		targets := NewTargets(Options{ID: "test"}, func(string) string { return address })
		if err := targets.AddStore("env:DATABASE_URL"); err != nil {
			t.Errorf("%s: %v", address, err)
			continue
		}
		if got := targets.Systems[0].Name(); got != name {
			t.Errorf("%s: name %q, want %q", address, got, name)
		}
		for _, want := range []string{"db.example", "db", "flights"} {
			if !slices.Contains(targets.Names, want) {
				t.Errorf("%s: names %q do not have %s", address, targets.Names, want)
			}
		}
		if strings.Contains(address, "app") && !(slices.Contains(targets.Secrets, "p@ss") && slices.Contains(targets.Names, "app")) {
			t.Errorf("%s: secrets %q, names %q", address, targets.Secrets, targets.Names)
		}
		targets.Close()
	}
	for _, address := range []string{
		"mysql://app:secret@db.example", "mysql://app:secret@db.example/a/b", "mysql://app:sec ret@%zz/x", "sqlserver://app:secret@db.example",
		"sqlserver://app:secret@db.example?database=x&encrypt=true&credential=default",
		"postgres://app:p@x/secret@db.example/flights", "mysql://app:p@x?secret@db.example/flights", "sqlserver://app:p@x?secret@db.example?database=flights",
	} {
		if err := NewTargets(Options{}, nil).AddStore(address); err == nil || strings.Contains(err.Error(), "sec") {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// A system that cannot be reached is one line with the cause and the next step, and so is each
// other one, which is not checked then.
func TestUnreachable(t *testing.T) {
	need.RealTime(t)
	for _, address := range []string{
		"postgres://app:secret@127.0.0.1:1/flights", "mysql://app:secret@127.0.0.1:1/flights", "sqlserver://app:secret@127.0.0.1:1?database=flights",
		"http://127.0.0.1:1/devstoreaccount1/container", "http://127.0.0.1:1/dbs/flights/colls/aircraft", "postgres://app:secret@nowhere.invalid/flights",
	} {
		targets := NewTargets(Options{ID: "test"}, func(name string) string {
			return map[string]string{
				CosmosKeyVariable: "a2V5",
				StorageVariable:   "DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;AccountKey=a2V5;BlobEndpoint=http://127.0.0.1:1/devstoreaccount1",
			}[name]
		})
		if err := errors.Join(targets.AddStore(address), targets.AddStore("sqlite:"+t.TempDir()+"/x.db")); err != nil {
			t.Errorf("%s: %v", address, err)
			continue
		}
		report, err := (&Runner{Systems: targets.Systems}).Run(t.Context())
		targets.Close()
		if err != nil {
			t.Errorf("%s: %v", address, err)
			continue
		}
		var text strings.Builder
		if err := report.Redact(targets.Secrets).WriteText(&text); err != nil {
			t.Fatal(err)
		}
		t.Log(text.String())
		var first, second, last string
		lines := strings.Split(text.String(), "\n")
		if first = lines[0]; strings.HasPrefix(lines[1], "           → check ") {
			first, lines = first+lines[1], lines[1:]
		}
		if len(lines) == 4 {
			second, last = lines[1], lines[2]
		}
		if !strings.HasPrefix(first, "failed     reached: ") || !strings.Contains(first, "cannot be reached: ") || !strings.Contains(first, "check ") || !strings.HasPrefix(second, "ok         rights: SQLite") || !strings.HasSuffix(last, ": not checked: another system cannot be reached") {
			t.Errorf("%s: the report is\n%s", address, text.String())
		}
		if strings.Contains(text.String(), "secret") || report.ExitCode() != ExitFailed {
			t.Errorf("%s: exit code %d, report\n%s", address, report.ExitCode(), text.String())
		}
	}
}
