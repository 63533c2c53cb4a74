//go:build !asazure

package asazure

// Enabled reports whether the build tag asazure is set.
const Enabled = false
