package partition

import (
	"errors"

	"github.com/sluice-go/sluice/internal/engine"
)

// A driver is code of others, as a handler is. A panic in it ends the partition that it is about,
// and not the process with all its partitions. In a request that is about no partition it is the
// failure of the request.

// errGoroutineEnded is why a partition ends one of whose goroutines was ended.
var errGoroutineEnded = errors.New("a goroutine of the partition was ended (runtime.Goexit): look for code of the log's or the store's driver that ends it")

// Survive runs a goroutine's part of the work on the partition. A panic, or the end of the
// goroutine, ends the partition.
func (a *Assignment) Survive(fn func()) {
	returned := false
	defer func() {
		var cause error
		switch v := recover(); {
		case v != nil:
			cause = engine.DriverPanic(v)
		case !returned:
			cause = errGoroutineEnded
		default:
			return
		}
		a.Failed(cause)
		a.Cancel(cause)
	}()
	fn()
	returned = true
}

// Guarded is survive for a part of the delivery after which others follow. It returns the reason
// why the partition ends.
func (a *Assignment) Guarded(fn func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = engine.DriverPanic(v)
			a.Failed(err)
			a.Cancel(err)
		}
	}()
	return fn()
}
