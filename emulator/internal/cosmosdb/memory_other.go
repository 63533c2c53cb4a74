//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package cosmosd

func mapMemory(n int) ([]byte, error) { return make([]byte, n), nil }

func unmapMemory([]byte) error { return nil }
