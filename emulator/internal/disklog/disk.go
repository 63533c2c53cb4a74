package disklog

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/sluice-go/sluice/internal/datadir"
)

// disk is a storage in a directory of the file system.
type disk struct {
	dir  string
	lock *datadir.DirLock
}

// openDisk creates the directory if it doesn't exist, and locks it.
func openDisk(dir string) (*disk, error) {
	if err := MakeDir(dir); err != nil {
		return nil, err
	}
	lock, err := datadir.Lock(dir)
	if err != nil {
		return nil, err
	}
	return &disk{dir: dir, lock: lock}, nil
}

func (d *disk) path() string                     { return d.dir }
func (d *disk) join(name string) string          { return filepath.Join(d.dir, name) }
func (d *disk) remove(name string) error         { return os.Remove(d.join(name)) }
func (d *disk) syncDir() error                   { return syncDir(d.dir) }
func (d *disk) close() error                     { return d.lock.Unlock() }
func (d *disk) read(name string) ([]byte, error) { return os.ReadFile(d.join(name)) }

func (d *disk) replace(name string, data []byte) error { return ReplaceFile(d.join(name), data) }

func (d *disk) list() ([]string, error) {
	entries, err := os.ReadDir(d.dir)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

func (d *disk) open(name string) (file, error) {
	f, err := os.OpenFile(d.join(name), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	return diskFile{f}, nil
}

func (d *disk) create(name string) (file, error) {
	f, err := os.OpenFile(d.join(name), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	return diskFile{f}, nil
}

type diskFile struct{ *os.File }

func (f diskFile) truncate(size int64) error { return f.Truncate(size) }
func (f diskFile) sync() error               { return syncData(f.File) }

func (f diskFile) size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

var zeros [256 << 10]byte

// allocate writes zeros. If it only reserved the blocks, the first fsync of each
// would have to write metadata, which took two to ten times as long as an fsync of
// overwritten zeros.
func (f diskFile) allocate(from, size int64) {
	for from < size {
		n, err := f.WriteAt(zeros[:min(int64(len(zeros)), size-from)], from)
		if err != nil {
			return
		}
		from += int64(n)
	}
}

// MakeDir creates a directory and its parents, durably.
func MakeDir(dir string) error {
	dir = filepath.Clean(dir)
	info, err := os.Stat(dir)
	switch {
	case err == nil && !info.IsDir():
		return fmt.Errorf("%s is not a directory", dir)
	case err == nil:
		return nil
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	parent := filepath.Dir(dir)
	if err := MakeDir(parent); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncDir(parent)
}

// ReplaceFile creates or replaces a small file durably and atomically.
func ReplaceFile(path string, data []byte) error {
	next := path + temporarySuffix
	f, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(next))
	}
	if err := os.Rename(next, path); err != nil {
		return errors.Join(err, os.Remove(next))
	}
	return syncDir(filepath.Dir(path))
}
