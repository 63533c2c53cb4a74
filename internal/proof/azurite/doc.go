// Package azurite gives tests a real Azure Storage of their own: Azurite,
// Microsoft's open-source server, which scripts/install-azurite installs.
//
//   - [Run] starts one server for a test binary, and [Container] makes up the
//     name of a container on it for each test.
//   - [RunAll] is the same with queues and tables, and [Connection] is the
//     server's connection string.
//   - [Start] starts a server of its own, over TLS if asked, which takes
//     tokens of Entra ID then; [Token] makes one up.
//
// The server listens on loopback, keeps everything in memory, reports to
// nobody, and does not outlive the tests, however they end.
package azurite
