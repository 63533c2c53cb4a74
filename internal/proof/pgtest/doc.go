//go:build unix

// Package pgtest gives tests a real PostgreSQL of their own.
//
//   - [Database] makes a fresh database for each test, on one server that all tests of a
//     test binary share.
//   - [New] starts a server for one test, which may [Server.Stop] it at any time
//     and [Server.Restart] it.
//   - [NewProxy] puts a proxy between a client and a server, which recognises COMMIT
//     on the wire: see package commitproxy.
//
// The server listens on loopback and on a unix socket in its own directory,
// with a random password. It runs as an unprivileged user if the tests run as
// root, and ends with them, however they end.
package pgtest
