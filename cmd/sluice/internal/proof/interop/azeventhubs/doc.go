// Package azeventhubs runs the live tests of Azure's Event Hubs client for Go, unmodified,
// against the emulator and Azurite. They come with the module, in the version of go.mod. Those
// that can't pass are listed with the reason; docs/emulator.md counts them.
package azeventhubs
