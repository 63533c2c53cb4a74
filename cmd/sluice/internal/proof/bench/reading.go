//go:build unix

package main

import (
	"fmt"
	"strings"
	"time"
)

// timeLayout has a fixed length.
const timeLayout = "2006-01-02T15:04:05.000000Z"

// reading makes an event's body: JSON of a size, most of it in a text.
func reading(n, size int, at time.Time) []byte {
	body := fmt.Appendf(make([]byte, 0, size), `{"device":"gauge-%04d","at":"%s","delay":%d,"distance":%d,"payload":"`,
		n%10_000, at.UTC().Format(timeLayout), n%500-20, 100+n%2000)
	body = append(body, padding[:max(0, size-len(body)-len(`"}`))]...)
	return append(body, `"}`...)
}

var padding = strings.Repeat("Each event's effect is in the database exactly once, or its dead letter is. ", 14)

// tables are what both contenders insert into, by kind of database; raw is the one without
// decoding.
var tables = map[string]map[string]string{
	"postgres": {
		"readings": `CREATE TABLE readings (hub_partition text, sequence_number bigint, device text, at timestamptz, delay integer, distance integer, payload text)`,
		"raw":      `CREATE TABLE raw (hub_partition text, sequence_number bigint, body text)`,
	},
	"mariadb": {
		"readings": `CREATE TABLE readings (hub_partition VARCHAR(20), sequence_number BIGINT, device VARCHAR(64), at DATETIME(6), delay INT, distance INT, payload TEXT) DEFAULT CHARACTER SET utf8mb4`,
		"raw":      `CREATE TABLE raw (hub_partition VARCHAR(20), sequence_number BIGINT, body TEXT) DEFAULT CHARACTER SET utf8mb4`,
	},
	"sqlserver": {
		"readings": `CREATE TABLE readings (hub_partition nvarchar(20), sequence_number bigint, device nvarchar(64), at datetime2(6), delay int, distance int, payload nvarchar(max))`,
		"raw":      `CREATE TABLE raw (hub_partition nvarchar(20), sequence_number bigint, body nvarchar(max))`,
	},
	"sqlite": {
		"readings": `CREATE TABLE readings (hub_partition TEXT, sequence_number INTEGER, device TEXT, at TEXT, delay INTEGER, distance INTEGER, payload TEXT)`,
		"raw":      `CREATE TABLE raw (hub_partition TEXT, sequence_number INTEGER, body TEXT)`,
	},
}
