//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package cosmosdb

func mapMemory(n int) ([]byte, error) { return make([]byte, n), nil }

func unmapMemory([]byte) error { return nil }
