package disklog

import "io"

// storage is the directory of one log. It is a seam, so that a log can live in
// memory, and so that tests can fail, tear and lose what was written.
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
	// replace puts a small file in the place of another, durably and as a whole.
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
	// allocate prepares the space between from and size, which the file may then
	// have, for fast syncs. It is a hint: where it fails, writes tell why.
	allocate(from, size int64)
}
