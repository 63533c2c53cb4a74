package need

import "testing"

func TestDemanded(t *testing.T) {
	for _, c := range []struct {
		value, name      string
		wanted, demanded bool
	}{
		{"", "kafka", true, false},
		{"none", "kafka", false, false},
		{"all", "kafka", true, true},
		{"all,-kafka", "kafka", false, false},
		{"all,-kafka", "postgres", true, true},
		{"postgres,kafka", "kafka", true, true},
		{"postgres", "kafka", false, false},
	} {
		wanted, demanded := Demanded(c.value, c.name)
		if wanted != c.wanted || demanded != c.demanded {
			t.Errorf("%s with %q: wanted %v, demanded %v", c.name, c.value, wanted, demanded)
		}
	}
}

func TestCheck(t *testing.T) {
	for _, value := range []string{"", "none", "all", "all,-kafka", "postgres,realtime"} {
		if err := Check(value); err != nil {
			t.Error(err)
		}
	}
	if err := Check("postgres,kafak"); err == nil {
		t.Error("a name that is unknown passes")
	}
}
