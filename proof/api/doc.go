// Package api holds the exported surface of the packages that programs import. api.txt lists it, a
// line for each name with its type: a break of programs that compile is a line that goes or
// changes, and must be made on purpose.
package api
