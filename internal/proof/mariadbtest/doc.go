//go:build unix

// Package mariadbtest gives tests a real MariaDB of their own, or another server of MySQL's
// protocol.
//
//   - [Database] makes a fresh database for each test, on one server that all tests of a
//     test binary share.
//   - [New] starts a MariaDB for one test, which may [Server.Stop] it at any time
//     and [Server.Restart] it.
//
// With SLUICE_MYSQL_URL, such as mysql://root:password@host:3306, the shared server is that one, of
// MySQL or MariaDB, whose user may create databases and set variables. Else it is a MariaDB that
// listens on loopback and on a unix socket in its own directory, with a random password. It runs as
// an unprivileged user if the tests run as root, and ends with them, however they end.
package mariadbtest
