package datadir

import (
	"errors"
	"io/fs"
	"os"
)

// CreateFile creates an empty file that only its owner can read, if there is none. SQLite
// gives the files beside a database the mode of the database.
func CreateFile(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return f.Close()
}
