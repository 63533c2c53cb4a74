package web

// over is how many seconds a speed is an average of.
const over = 5

// speed counts by seconds what a partition has done lately.
type speed struct {
	second int64 // that counts[second % len] belongs to
	counts [over + 1]int64
}

func (s *speed) add(second, n int64) {
	s.turn(second)
	s.counts[second%(over+1)] += n
}

// at is the mean of the last whole seconds before this one.
func (s *speed) at(second int64) float64 {
	s.turn(second)
	sum := int64(0)
	for i, n := range s.counts {
		if int64(i) != second%(over+1) {
			sum += n
		}
	}
	return float64(sum) / over
}

// turn empties what is too old.
func (s *speed) turn(second int64) {
	for step := 0; s.second < second && step <= over; step++ {
		s.second = max(s.second+1, second-over)
		s.counts[s.second%(over+1)] = 0
	}
}
