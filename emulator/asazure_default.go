//go:build !asazure

package emulator

// asAzureByDefault returns how servers behave whose configuration does not say: see
// asazure_tests.go. It is not a nil pointer.
var asAzureByDefault = func() *AsAzure { return &AsAzure{} }
