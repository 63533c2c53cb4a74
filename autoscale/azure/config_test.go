package azure

import (
	"strings"
	"testing"
	"time"
)

func TestMistakes(t *testing.T) {
	for _, cfg := range []*Config{
		nil,
		{Account: "contoso"},
		{Connection: "AccountName=contoso;AccountKey=hunter2"},
		{Connection: "UseDevelopmentStorage=true", Account: "contoso"},
		{Connection: "UseDevelopmentStorage=true", Lock: 1500 * time.Millisecond},
		{Connection: "hunter2"},
	} {
		_, err := OpenStore(t.Context(), cfg)
		if _, other := OpenQueue(t.Context(), "metrics", cfg); other == nil || err == nil && (cfg == nil || cfg.Lock == 0) {
			t.Errorf("%+v is taken: %v, %v", cfg, err, other)
		} else if strings.Contains(other.Error(), "hunter2") {
			t.Errorf("%+v: %v", cfg, other)
		}
	}
}

func TestKeys(t *testing.T) {
	for name, want := range map[string]string{
		"orders-billing-backlog": "orders-billing-backlog",
		"a.b_C9":                 "a.b_C9",
		"r/x#?\\ '=~":            "r=2Fx=23=3F=5C=20=27=3D=7E",
		"ü":                      "=C3=BC",
	} {
		if got := key(name); got != want {
			t.Errorf("key of %q is %s, want %s", name, got, want)
		}
	}
}

// TestChunks: a text is cut between characters, and put together again.
func TestChunks(t *testing.T) {
	for _, n := range []int{0, 1, maxProperty - 2, maxProperty, 3*maxProperty + 1} {
		for _, letter := range []string{"a", "ü", "✈", "𝄞"} {
			e := row("r", "k")
			text, got := strings.Repeat(letter, n/len(letter)), ""
			if err := put(e, "History", text); err != nil {
				t.Fatal(err)
			}
			if err := get(e, "History", &got); err != nil || got != text {
				t.Errorf("%d bytes of %s come back as %d, %v", len(text), letter, len(got), err)
			}
		}
	}
	if err := put(row("r", "k"), "History", strings.Repeat("x", maxProperty*maxProperties)); err == nil {
		t.Error("an entity takes more than there is room for")
	}
}
