package emulator

import (
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
)

// The tests of this package say themselves how a server behaves, also with the build tag asazure.
func init() { asAzureByDefault = func() *AsAzure { return &AsAzure{} } }

// Each switch takes Azure's value and off; no two have a name in common.
func TestAsAzureSwitches(t *testing.T) {
	seen := make(map[string]bool)
	for _, s := range asAzureSwitches() {
		if seen[s.name] || s.name == "all" || s.name != strings.ToLower(s.name) {
			t.Errorf("name %s", s.name)
		}
		seen[s.name] = true
		on, err := ParseAsAzure(s.name, 0)
		if err != nil || reflect.DeepEqual(on, &AsAzure{}) {
			t.Errorf("%s sets %+v, %v", s.name, on, err)
		}
		off, err := ParseAsAzure(s.name+","+s.name+"=off", 0)
		if err != nil || !reflect.DeepEqual(off, &AsAzure{}) {
			t.Errorf("%s=off leaves %+v, %v", s.name, off, err)
		}
	}
}

// docs/reference/emulator.md has one row for each switch, with Azure's value and a source.
func TestAsAzureDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/reference/emulator.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := make(map[string]string) // values by name
	for line := range strings.SplitSeq(string(text), "\n") {
		cells := strings.Split(line, " | ")
		if name, ok := strings.CutPrefix(cells[0], "| `"); ok && len(cells) == 4 && len(cells[3]) > 3 {
			rows[strings.TrimSuffix(name, "`")] = strings.Trim(cells[1], "`")
		}
	}
	for _, s := range asAzureSwitches() {
		want := s.azure
		if s.special {
			want = "special"
		}
		if got, ok := rows[s.name]; !ok || got != want {
			t.Errorf("docs/reference/emulator.md: %s has the value %q, want %q", s.name, got, want)
		}
		delete(rows, s.name)
	}
	if len(rows) > 0 {
		t.Errorf("docs/reference/emulator.md: no such switches: %v", rows)
	}
}

// all can be adjusted, and leaves out what only special namespaces do.
func TestParseAsAzure(t *testing.T) {
	a, err := ParseAsAzure("all, idle-link=10s,random-busy=off,geo", 7)
	want := AllAsAzure(7)
	want.EventHubs.IdleLink, want.EventHubs.RandomBusy, want.EventHubs.Geo = 10*time.Second, 0, true
	if err != nil || !reflect.DeepEqual(a, want) {
		t.Errorf("got %+v, %v, want %+v", a, err, want)
	}
	if all := AllAsAzure(0).EventHubs; all.NoRuntime || all.Geo || all.StaleRuntime != 5*time.Second || !all.KnownGroups {
		t.Errorf("all: %+v", all)
	}
	for list, want := range map[string]string{
		"":                      `unknown behaviour "": write all, stale-runtime, `,
		"stale-runtim":          `unknown behaviour "stale-runtim": did you mean stale-runtime?`,
		"all=on":                `unknown behaviour "all"`,
		"stale-runtime=5":       `behaviour stale-runtime: "5": write a positive duration, such as 5s, or off`,
		"connections=0":         `behaviour connections: "0": write a whole number of at least 1, such as 5000, or off`,
		"random-busy=NaN":       `behaviour random-busy: "NaN": write a share of the operations above 0, at most 1, such as 0.01, or off`,
		"geo=5":                 `behaviour geo: write on or off`,
		"all,envelope-routing=": `behaviour envelope-routing: write on or off`,
	} {
		if _, err := ParseAsAzure(list, 0); err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v", list, err)
		}
	}
}
