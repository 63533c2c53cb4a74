//go:build unix

// Package pgtest gives tests a real PostgreSQL of their own.
//
//   - [Run] starts one server for a test binary, and [Database] makes a fresh
//     database on it for each test.
//   - [New] starts a server for one test, which may [Server.Stop] it at any time
//     and [Server.Restart] it.
//   - [NewProxy] puts a proxy between a client and a server, which recognises COMMIT
//     on the wire: see package commitproxy.
//
// The server listens on loopback and on a unix socket in its own directory,
// with a random password. It runs as an unprivileged user if the tests run as
// root, and ends with them, however they end.
package pgtest
