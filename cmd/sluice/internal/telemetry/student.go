package telemetry

import "math"

// quantile is the value of Student's t that is above this share, by the expansion of Cornish and
// Fisher (NIST's Handbook, 26.7.5): within 1 % from three degrees of freedom on.
func quantile(share float64, free int) float64 {
	z, n := math.Sqrt2*math.Erfinv(2*share-1), float64(free)
	s := z * z
	return z * (1 + (s+1)/(4*n) +
		((5*s+16)*s+3)/(96*n*n) +
		(((3*s+19)*s+17)*s-15)/(384*n*n*n) +
		((((79*s+776)*s+1482)*s-1920)*s-945)/(92160*n*n*n*n))
}
