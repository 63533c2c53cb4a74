// Package usage marks the errors that are mistakes in how a command was called.
package usage

import "fmt"

// Error is a mistake in a command's flags or arguments. The command ends with exit code 2.
type Error struct{ text string }

func (e *Error) Error() string { return e.text }

// Errorf makes an [*Error].
func Errorf(format string, args ...any) error { return &Error{fmt.Sprintf(format, args...)} }
