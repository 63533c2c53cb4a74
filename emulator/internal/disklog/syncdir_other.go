//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package disklog

// syncDir does nothing: these systems cannot sync directories.
func syncDir(string) error { return nil }
