//go:build unix

// Package pgtest gives tests a real PostgreSQL of their own.
//
//   - [Run] starts one server for a test binary, and [Database] makes a fresh
//     database on it for each test.
//   - [New] starts a server for one test, which may [Server.Stop] it in the
//     middle of things and [Server.Restart] it.
//   - [Proxy] stands between a client and a server, recognises COMMIT on the
//     wire, and loses it, loses its answer, or delivers it late.
//
// The server listens on loopback and on a unix socket in its own directory,
// under a random password. It runs as an unprivileged user where the tests run
// as root, and does not outlive them, however they end.
package pgtest
