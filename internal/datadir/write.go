package datadir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// WriteFile writes a file with these permissions, or replaces the one that is there. A reader sees
// the old contents or the new ones, never a part. It does not sync: after a power failure the
// file can be empty.
func WriteFile(path string, data []byte, perm fs.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(perm), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
