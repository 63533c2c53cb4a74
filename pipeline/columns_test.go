package pipeline

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/internal/proof/need"
)

// A file with as many columns as it can hold is refused, in a time that grows with its
// length and not with the square of it.
func TestManyColumnsAreRefusedSoon(t *testing.T) {
	need.RealTime(t)
	read := func(columns int) time.Duration {
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
		took := time.Since(began)
		if err == nil || !strings.Contains(err.Error(), "at most") {
			t.Fatalf("%d columns: %v", columns, err)
		}
		return took
	}
	few, many := read(2_000), read(32_000)
	for try := 0; try < 4 && many > 100*few; try++ { // the machine may have been busy
		few, many = min(few, read(2_000)), min(many, read(32_000))
	}
	if many > 100*few {
		t.Errorf("16 times as many columns took %v instead of %v", many, few)
	}
	t.Log(few, many)
}
