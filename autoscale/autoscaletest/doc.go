// Package autoscaletest has conformance suites for implementations of
// [autoscale.Store] and [autoscale.Queue].
package autoscaletest
