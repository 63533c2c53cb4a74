package disklog

import (
	"fmt"
	"io"
	"io/fs"
	"sync"
	"sync/atomic"
)

// memory is a storage in memory.
type memory struct {
	mu    sync.Mutex
	files map[string]*content
	small map[string][]byte
}

func newMemory() *memory {
	return &memory{files: make(map[string]*content), small: make(map[string][]byte)}
}

// content is what a file in memory holds, in blocks.
type content struct {
	mu     sync.RWMutex
	blocks [][]byte
	length int64
}

const memoryBlock = 64 << 10

func (m *memory) path() string { return "" }

func (m *memory) list() ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var names []string
	for name := range m.files {
		names = append(names, name)
	}
	for name := range m.small {
		names = append(names, name)
	}
	return names, nil
}

func (m *memory) open(name string) (file, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c, ok := m.files[name]
	if !ok {
		return nil, fmt.Errorf("open %s: %w", name, fs.ErrNotExist)
	}
	return &memoryFile{content: c}, nil
}

func (m *memory) create(name string) (file, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.files[name]; ok {
		return nil, fmt.Errorf("create %s: %w", name, fs.ErrExist)
	}
	c := &content{}
	m.files[name] = c
	return &memoryFile{content: c}, nil
}

func (m *memory) remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.files, name)
	delete(m.small, name)
	return nil
}

func (m *memory) read(name string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	data, ok := m.small[name]
	if !ok {
		return nil, fmt.Errorf("read %s: %w", name, fs.ErrNotExist)
	}
	return data, nil
}

func (m *memory) replace(name string, data []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.small[name] = append([]byte(nil), data...)
	return nil
}

func (m *memory) syncDir() error { return nil }
func (m *memory) close() error   { return nil }

// memoryFile is a handle on a file in memory.
type memoryFile struct {
	*content
	closed atomic.Bool
}

func (f *memoryFile) ReadAt(p []byte, off int64) (int, error) {
	if f.closed.Load() {
		return 0, fs.ErrClosed
	}
	f.mu.RLock()
	defer f.mu.RUnlock()
	n := 0
	for n < len(p) && off < f.length {
		block := f.blocks[off/memoryBlock][off%memoryBlock:]
		block = block[:min(int64(len(block)), f.length-off)]
		c := copy(p[n:], block)
		n, off = n+c, off+int64(c)
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memoryFile) WriteAt(p []byte, off int64) (int, error) {
	if f.closed.Load() {
		return 0, fs.ErrClosed
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.length = max(f.length, off+int64(len(p)))
	for int64(len(f.blocks))*memoryBlock < f.length {
		f.blocks = append(f.blocks, make([]byte, memoryBlock))
	}
	n := 0
	for n < len(p) {
		c := copy(f.blocks[off/memoryBlock][off%memoryBlock:], p[n:])
		n, off = n+c, off+int64(c)
	}
	return n, nil
}

func (f *memoryFile) Close() error {
	if f.closed.Swap(true) {
		return fs.ErrClosed
	}
	return nil
}

func (f *memoryFile) size() (int64, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.length, nil
}

func (f *memoryFile) truncate(size int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for int64(len(f.blocks))*memoryBlock < size {
		f.blocks = append(f.blocks, make([]byte, memoryBlock))
	}
	keep := (size + memoryBlock - 1) / memoryBlock
	clear(f.blocks[keep:])
	f.blocks = f.blocks[:keep]
	if used := size % memoryBlock; used > 0 {
		clear(f.blocks[keep-1][used:])
	}
	f.length = size
	return nil
}

func (f *memoryFile) sync() error               { return nil }
func (f *memoryFile) allocate(from, size int64) {}
