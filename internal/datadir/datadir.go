// Package datadir keeps files in a directory that one process uses at a time: it locks the
// directory and replaces files whole.
package datadir

import "errors"

// ErrLocked means that another process, or another holder in this one, has locked the
// directory or file.
var ErrLocked = errors.New("in use by another process")
