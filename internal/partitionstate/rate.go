package partitionstate

// rateSeconds is how many seconds a rate is an average of.
const rateSeconds = 5

// rate counts by seconds what a partition has done lately.
type rate struct {
	second int64 // that counts[second % len] belongs to
	counts [rateSeconds + 1]int64
}

func (r *rate) add(second, n int64) {
	r.advance(second)
	r.counts[second%(rateSeconds+1)] += n
}

// mean is the mean of the last whole seconds before this one.
func (r *rate) mean(second int64) float64 {
	r.advance(second)
	sum := int64(0)
	for i, n := range r.counts {
		if int64(i) != second%(rateSeconds+1) {
			sum += n
		}
	}
	return float64(sum) / rateSeconds
}

// advance empties the counts that are too old.
func (r *rate) advance(second int64) {
	for step := 0; r.second < second && step <= rateSeconds; step++ {
		r.second = max(r.second+1, second-rateSeconds)
		r.counts[r.second%(rateSeconds+1)] = 0
	}
}
