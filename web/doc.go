// Package web is the dashboard: whether events flow, what waits, what failed,
// live in a browser, over HTTPS with HTTP/2.
//
// A [Dashboard] shows pipelines, each by the seams that it is made of and by a
// [Meter], an observer that the consumer is given. It is an http.Handler;
// [Dashboard.Listen] serves it by itself. A [PausableSource] around the source lets a
// person pause partitions.
//
// Who may see it: with a token, whoever has signed in. Without one only this
// machine, by its loopback addresses; whatever comes from further away is
// refused.
package web
