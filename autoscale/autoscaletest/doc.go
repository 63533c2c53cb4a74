// Package autoscaletest holds the conformance suites for the stores and queues
// of package autoscale.
package autoscaletest
