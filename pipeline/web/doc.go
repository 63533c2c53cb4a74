// Package web is the dashboard: it shows live in a browser whether events flow,
// what waits and what failed, over HTTPS with HTTP/2.
//
// A [Dashboard] shows pipelines. It reads each one's source and stores, and a
// [Meter], an observer of the consumer. It is an http.Handler; [Dashboard.Listen]
// makes a server of it. A [PausableSource] around the source lets an operator pause
// partitions.
//
// With a token, only browsers that have signed in may use it. Without a token, only
// requests of this machine, to its loopback addresses, are answered.
package web
