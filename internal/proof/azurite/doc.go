// Package azurite gives tests a real Azure Storage of their own: Azurite,
// Microsoft's open-source server, which scripts/install-azurite installs.
//
//   - [Connection] is the connection string of one server that all tests of a test binary
//     share, and [Container] returns the name of a new container on it for each test.
//   - [Start] starts a separate server, with TLS on request, which then accepts
//     tokens of Entra ID; [Token] makes one.
//
// The server listens on loopback, keeps everything in memory, sends no telemetry,
// and ends with the tests, however they end.
package azurite
