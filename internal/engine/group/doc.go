// Package group decides which partitions a process reads. A [Member] acquires their leases, divides
// the partitions with the other members, renews, and holds an assignment of package partition for
// each.
package group
