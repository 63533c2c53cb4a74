// Package outbox makes a table of a database a log, so that a program writes its rows and its
// messages in one transaction, and a consumer reads the messages as events: once each, without a
// gap, in an order that keeps the order of each key. The databases are PostgreSQL, MySQL and
// MariaDB, SQL Server and SQLite.
//
// Writers insert rows without a number ([Source.Add], or SQL). A reader numbers the rows that it
// sees: in one transaction it locks the row of the partition, reads committed rows without locks,
// and gives them the next numbers by id. These numbers are the sequence numbers. They are dense, so
// a missing one is a loss, and a row that is committed late gets a later number. An id is never a
// position: ids are assigned before COMMIT, so a reader by id passes rows that are committed later.
//
// Rows of one key are in the order of their writers if each writer locks the same row of its own
// tables before it inserts, as an UPDATE of that row does.
//
// Reading order: source.go, number.go, reader.go, then the rest in any order.
package outbox
