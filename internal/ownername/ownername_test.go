package ownername

import (
	"strings"
	"testing"
)

func TestNew(t *testing.T) {
	a, b := New(), New()
	if a == b || len(a) > 57 || strings.ContainsAny(a, " /\n") || a != strings.TrimSpace(a) {
		t.Errorf("%q, %q", a, b)
	}
}
