// Package postgres is what the stores in PostgreSQL have in common, over pgx and over database/sql:
// the tables, how to connect, what an error means, and which statements end a transaction.
package postgres
