// Package web is the dashboard: whether events flow, what waits, what failed,
// live in a browser, over HTTPS with HTTP/2.
//
// A [Dashboard] shows pipelines, each by the seams that it is made of and by a
// [Meter], an observer that the consumer is given. It is an http.Handler;
// [Dashboard.Listen] makes a server of it. A [PausableSource] around the source lets an
// operator pause partitions.
//
// With a token, only a browser that has signed in may see it. Without one, only
// this machine may, by its loopback addresses; other requests are refused.
package web
