package sender

import "testing"

// TestSizeEstimate corrects an estimate by refused batches of one message.
func TestSizeEstimate(t *testing.T) {
	s := sizeEstimate{limit: 1000, header: 40}
	for _, step := range []struct {
		what           string
		overhead, body int
		limit, header  int // after it
	}{
		{"more overhead than the header", 60, 900, 1000, 60},
		{"a little more", 61, 900, 1000, 75},
		{"no more overhead", 75, 825, 855, 75},
		{"packed before the limit was cut", 75, 925, 855, 75},
		{"smaller than the limit", 0, 425, 475, 75},
	} {
		s.refusedAsTooLarge(step.overhead, func(header int) int { return header + step.body })
		if limit, header := s.current(); limit != step.limit || header != step.header {
			t.Errorf("%s: limit %d, header %d, want %d and %d", step.what, limit, header, step.limit, step.header)
		}
	}
}
