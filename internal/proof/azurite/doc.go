// Package azurite gives tests a real Azure Storage of their own: Azurite,
// Microsoft's open-source server, which scripts/install-azurite installs.
//
//   - [Run] starts one server for a test binary, and [Container] returns the name
//     of a new container on it for each test.
//   - [RunAll] is the same with queues and tables, and [Connection] is the
//     server's connection string.
//   - [Start] starts a separate server, with TLS on request, which then accepts
//     tokens of Entra ID; [Token] makes one.
//
// The server listens on loopback, keeps everything in memory, sends no telemetry,
// and ends with the tests, however they end.
package azurite
