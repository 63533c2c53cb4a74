//go:build unix

// Package sqlservertest gives tests a server that speaks SQL Server's protocol and T-SQL.
//
//   - [Database] makes a fresh database for each test, on one server that all tests of a test
//     binary share.
//   - [New] starts a server for one test, which may [Server.Stop] it at any time and [Server.Restart] it.
//   - [NewProxy] puts a proxy between a client and a server, which recognises COMMIT on the wire: see
//     package commitproxy.
//
// With SLUICE_SQLSERVER_URL, such as sqlserver://sa:password@host:1433, the shared server is that
// one, whose user may create databases. Else it is Babelfish (PostgreSQL with SQL Server's
// protocol) from the directory of SLUICE_SQLSERVER_DIR, which has the programs bin/start-babelfish
// and bin/stop-babelfish, or from where scripts/install-sqlserver has put it. It listens on
// loopback, runs as an unprivileged user if the tests run as root, and ends with them, however they
// end.
package sqlservertest
