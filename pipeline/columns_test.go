package pipeline

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// A file with as many columns as it can hold is refused, in a time that grows with its
// length and not with the square of it.
func TestManyColumnsAreRefusedSoon(t *testing.T) {
	read := func(columns int) (time.Duration, error) {
		var b strings.Builder
		for i := range columns {
			fmt.Fprintf(&b, "      c%d: body.c%d\n", i, i)
		}
		file := strings.Replace(sound, "columns:\n", "columns:\n"+b.String(), 1)
		if file == sound {
			t.Fatal("the file has no columns")
		}
		began := time.Now()
		_, err := Parse("p.yaml", []byte(file), environment())
		return time.Since(began), err
	}
	few, err := read(2_000)
	if err == nil || !strings.Contains(err.Error(), "at most") {
		t.Errorf("2,000 columns: %v", err)
	}
	many, err := read(32_000)
	if err == nil {
		t.Error("32,000 columns are accepted")
	}
	if many > 100*few {
		t.Errorf("16 times as many columns took %v instead of %v", many, few)
	}
	t.Log(few, many, err.Error()[:min(len(err.Error()), 100)])
}
