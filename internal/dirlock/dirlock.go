// Package dirlock locks a directory, so that only one process at a time uses its files.
package dirlock

import "errors"

// ErrLocked means that another process, or another holder in this one, has locked the
// directory.
var ErrLocked = errors.New("directory is in use by another process")
