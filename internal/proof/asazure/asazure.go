// Package asazure makes the emulators of tests behave as Azure does where the build tag asazure
// is set:
//
//	go test -tags asazure ./...
//
// Package emulator itself reads the tag, so most tests need nothing of this package.
package asazure

import "github.com/sluice-go/sluice/emulator"

// WithoutBusy returns the behaviours for a test that repeats nothing: all but refusals at
// random with the build tag asazure, none without it.
func WithoutBusy() *emulator.AsAzure {
	if !Enabled {
		return Kind()
	}
	all := emulator.AllAsAzure(1)
	all.EventHubs.RandomBusy, all.ServiceBus.RandomBusy = 0, 0
	return all
}

// FreshRuntime returns the behaviours for a test that counts events by the runtime information,
// because others read meanwhile: all but those that make it inexact with the build tag asazure,
// none without it.
func FreshRuntime() *emulator.AsAzure {
	if !Enabled {
		return Kind()
	}
	all := emulator.AllAsAzure(1)
	all.EventHubs.StaleRuntime, all.EventHubs.InexactBeginning = 0, 0
	return all
}

// Kind returns no behaviours, for a test that is about an exact and quick server. The build tag
// asazure does not change them.
func Kind() *emulator.AsAzure { return &emulator.AsAzure{} }
