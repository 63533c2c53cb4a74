// Package debezium proves that a table of one PostgreSQL becomes the same table in another one, by
// the changes that Debezium's connector reports, while every process is killed now and then.
package debezium
