// Package attack runs Sluice as its users do, in processes of its own, and
// does to them what can be done: kills them, pauses them past their leases,
// crashes the hub and PostgreSQL, resets, swallows and cuts what is on the
// wire, loses COMMITs, their answers, or delivers them late. At the end every
// event must have taken effect exactly once, or be a dead letter once; what
// was sent, claimed and committed is checked by cmd/sluice/internal/history, and no
// secret may have come to light.
//
// Its parts: a [Plan] says what strikes how often; [Run] strikes and judges; a
// [Report] tells. [Link] is the network, an island is a network of its own
// with one cable to it, and the moments of a step's way to PostgreSQL are seen
// by internal/proof/pgtest's proxy.
package attack
