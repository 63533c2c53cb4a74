// Package azservicebus runs the live tests of Azure's Service Bus client for Go, unmodified,
// against the emulator. They come with the module, in the version of go.mod. Those that the
// emulator can't pass are listed with the reason; docs/emulator.md counts them.
package azservicebus
