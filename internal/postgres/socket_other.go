//go:build !linux

package postgres

import (
	"syscall"
	"time"
)

// limitUnacknowledged does nothing: the system has no such setting, so keep-alives alone detect a
// server that is gone.
func limitUnacknowledged(syscall.RawConn, time.Duration) error { return nil }
