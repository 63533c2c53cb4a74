// Package dirlock locks a directory, so that one process at a time uses what is in it.
package dirlock

import "errors"

// ErrLocked means that another process, or another holder in this one, has the
// directory.
var ErrLocked = errors.New("directory is in use by another process")
