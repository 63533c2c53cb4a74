package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// theme is a kind of trouble that only some worlds have, in addition to what happens
// in all of them.
type theme uint

const (
	hangs         theme = 1 << iota // requests that are never answered, while others are
	silentReaders                   // readers that return nothing more, and no error
)

var themeNames = []string{"hangs", "silent-readers"}

// The themes that seeds draw, by the kind of world.
const (
	drawn       theme = 0
	drawnStream       = drawn
	drawnChain        = drawn
)

// themeSites are the kinds of faults of each theme, besides those of requests.
var themeSites = map[string][]string{
	"silent-readers": {"reader that falls silent"},
}

// ParseThemes reads the names of themes, separated by commas.
func ParseThemes(text string) (t theme, err error) {
	for name := range strings.SplitSeq(text, ",") {
		i := slices.Index(themeNames, strings.TrimSpace(name))
		if i < 0 {
			return 0, fmt.Errorf("theme %q: unknown; use %s", name, strings.Join(themeNames, ", "))
		}
		t |= 1 << i
	}
	return t, nil
}

// drawThemes draws each theme of a list with a probability of a quarter.
func drawThemes(seed uint64, from theme) theme {
	r := rand.New(rand.NewPCG(seed, 10))
	var t theme
	for i := range themeNames {
		if one := theme(1 << i); r.IntN(4) == 0 && from&one != 0 {
			t |= one
		}
	}
	return t
}

// has reports whether the world has a theme.
func (w *world) has(t theme) bool { return w.cfg.Themes&t != 0 }
