//go:build !asazure

package asazure

// On reports whether the build tag asazure is set.
const On = false
