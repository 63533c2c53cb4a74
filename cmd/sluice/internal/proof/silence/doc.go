// Package silence measures, in its tests, what a consumer does when a connection falls silent:
// packets are dropped and nothing fails. It must report that within the lease, and go on within
// two.
package silence
