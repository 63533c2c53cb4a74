//go:build asazure

package emulator

// The build tag asazure is for tests: every server whose configuration does not say how it
// behaves has all of Azure's behaviours, also those of the processes that tests start. A test
// that is about a kind server sets AsAzure to its zero value.
func init() {
	asAzureByDefault = func() *AsAzure { return AllAsAzure(1) }
}
