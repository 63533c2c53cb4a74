//go:build asazure

package emulator

// asAzureByDefault returns how servers behave whose configuration does not say. The build tag
// asazure is for tests: all servers have Azure's behaviours, also those of the programs that
// tests build and start. A test that is about a kind server sets AsAzure to its zero value.
var asAzureByDefault = func() *AsAzure { return AllAsAzure(1) }
