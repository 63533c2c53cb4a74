package disklog

import "io"

// storage is the directory of one log. It is an interface so that a log can live
// in memory, and so that tests can simulate failed, torn and lost writes.
type storage interface {
	// path names the directory in messages; "" in memory.
	path() string
	list() ([]string, error)
	// open opens a file that exists, for reading and writing.
	open(name string) (file, error)
	// create makes an empty file that must not exist. It is durable only after
	// syncDir.
	create(name string) (file, error)
	remove(name string) error
	syncDir() error
	// read returns a small file; an error that is fs.ErrNotExist if there is none.
	read(name string) ([]byte, error)
	// replace replaces a small file durably and atomically.
	replace(name string, data []byte) error
	close() error
}

type file interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	size() (int64, error)
	truncate(size int64) error
	// sync makes the content and the size durable.
	sync() error
	// allocate may extend the file from from to size bytes, so that later syncs are
	// fast. It is a hint: if it fails, the writes report the error.
	allocate(from, size int64)
}
