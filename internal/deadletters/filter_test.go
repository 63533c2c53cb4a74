package deadletters_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/deadletters"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestParseFilter(t *testing.T) {
	n := func(v int64) *int64 { return &v }
	for text, want := range map[string]sluice.DeadLetterFilter{
		"partition=3": {Partition: "3"},
		"partition=3, error~timeout, since=2026-01-01T00:00:00Z, status=dead, key=LAX, sequence=10..20": {
			Partition: "3", ErrorContains: "timeout", FailedSince: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
			Status: []sluice.DeadLetterStatus{sluice.StatusDead}, Key: "LAX", FirstSequence: n(10), LastSequence: n(20),
		},
		`error~"a, \"b\" \\ = ~ " ,key = x y `:   {ErrorContains: `a, "b" \ = ~ `, Key: "x y"},
		"status=dead | retry|dead":               {Status: []sluice.DeadLetterStatus{sluice.StatusDead, sluice.StatusRetry}},
		"since=24h ago,before=90m ago":           {FailedSince: now.Add(-24 * time.Hour), FailedBefore: now.Add(-90 * time.Minute)},
		"sequence=7":                             {FirstSequence: n(7), LastSequence: n(7)},
		"sequence=7..":                           {FirstSequence: n(7)},
		"sequence=..0":                           {LastSequence: n(0)},
		"error~delay=x":                          {ErrorContains: "delay=x"},
		"before=2026-01-01T00:00:00+02:00,key=a": {FailedBefore: time.Date(2025, 12, 31, 22, 0, 0, 0, time.UTC), Key: "a"},
	} {
		got, err := deadletters.ParseFilter(text, now)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		got.FailedSince, got.FailedBefore = got.FailedSince.UTC(), got.FailedBefore.UTC()
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n got %+v\nwant %+v", text, got, want)
		}
	}
}

func TestParseFilterErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                                "write it like one of partition=P",
		"partition":                       `condition "partition"`,
		"partition=3,":                    `condition ""`,
		"partition=3,,key=a":              `condition ""`,
		"partitions=3":                    `unknown condition "partitions": use one of partition=P`,
		"partition=":                      `condition "partition": the value is missing`,
		`key=""`:                          `condition "key": the value is missing`,
		"partition=3,partition=4":         `condition "partition": given twice`,
		"partition~3":                     "write it as partition=",
		"error=x":                         "write it as error~",
		"status=dad":                      `"dad" is not one of dead, retry, discarded`,
		"since=yesterday":                 "write a time like 2026-01-01T00:00:00Z",
		"since=-3h ago":                   "write a time like 24h ago",
		"sequence=..":                     "no first and no last number",
		"sequence=9..3":                   "9..3 is empty",
		"sequence=-1":                     `"-1" is not a sequence number`,
		"sequence=99999999999999999999":   "is not a sequence number",
		`error~"a`:                        "the closing quote is missing",
		`error~"a"b`:                      "a comma must follow the closing quote",
		`error~"a\n"`:                     "a backslash can only stand before",
		`error~"a\`:                       "a backslash can only stand before",
		"key=" + strings.Repeat("x", 5e3): "limit is 4096",
	} {
		_, err := deadletters.ParseFilter(text, now)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40s: got %v, want %q", text, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"partition=3, error~timeout, since=2026-01-01T00:00:00Z, status=dead, key=LAX, sequence=10..20",
		`error~"a, \"b\" \\", before=24h ago`, "sequence=..1", "a=,b", `key="`, "status=dead|",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := deadletters.ParseFilter(text, now)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("error of more than one line: %q", err)
			}
			return
		}
		if reflect.DeepEqual(got, sluice.DeadLetterFilter{}) {
			t.Errorf("%q selects everything", text)
		}
		if len(got.IDs) != 0 || got.AfterID != 0 || got.Limit != 0 {
			t.Errorf("%q sets what has no condition: %+v", text, got)
		}
	})
}
