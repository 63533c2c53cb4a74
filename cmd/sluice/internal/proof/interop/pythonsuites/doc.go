// Package pythonsuites runs the tests of Azure's clients for Python, unmodified, against the
// emulator and Azurite. They come with the source that the clients' packages are published with;
// scripts/install-interop-python installs them. The directory shim stands in for what these tests
// import and is not published: the Azure SDK's test utilities, and the resource manager, which the
// emulator has not.
//
// Those that can't pass are listed with the reason; docs/emulator.md counts them.
package pythonsuites
