// Package stream delivers a partition's events to a sink: many in flight, completed in any order.
//
// To change what is in flight and how records are made and submitted, see records.go; how many
// records a sink gets, window.go; outages, breaker.go; whose fault a failure is, failures.go and
// mapping.go; the checkpoint, checkpoint.go; dead letters, deadletters.go; redrives, redrive.go;
// the rate, rate.go.
package stream
