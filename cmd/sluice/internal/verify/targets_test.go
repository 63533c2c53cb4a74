package verify

import (
	"slices"
	"strings"
	"testing"
)

// The password of a server's address is a secret, and its names are left out of the report that is sent.
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
	} {
		if err := NewTargets(Options{}, nil).AddStore(address); err == nil || strings.Contains(err.Error(), "sec") {
			t.Errorf("%s: %v", address, err)
		}
	}
}
