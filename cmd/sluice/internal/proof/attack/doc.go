// Package attack runs Sluice as its users do, in separate processes, and injects
// faults: it kills the processes, pauses them past their leases, crashes the hub
// and the database, resets, blocks and cuts connections, loses COMMITs or their
// answers, and delivers COMMITs late. At the end every event must have taken
// effect exactly once, or be a dead letter once; cmd/sluice/internal/history
// checks what was sent, claimed and committed; and no secret may appear in any
// output.
//
// A [Plan] says how often each fault strikes. The attack goes on, with more events, until each has,
// at most for Limit of [Config]; [Report.Missing] names the faults that could not strike as often,
// and the test is skipped. An [Engine] is the kind of database;
// [Run] injects the faults and checks the result; a [Report] has the result. Package netns makes
// network namespaces with one cable to the host, internal/proof/tcplink is a TCP proxy, and
// internal/proof/commitproxy sees the statements on their way to the database.
package attack
