package disklog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"sort"
	"syscall"
)

var errPower = errors.New("power is off")

const sector = 512

// machine simulates a computer's storage and its failures: the power can be cut at
// any operation, after which each sector that was not synced is on the disk or not;
// a write or fsync can fail; and after a failed fsync the pages are marked clean
// although the disk may not have them, as on Linux.
type machine struct {
	rng       *rand.Rand
	dir       map[string]*simFile // as the process sees it
	saved     map[string]*simFile // as it is on the disk
	small     map[string][]byte   // replaced as a whole, always durable
	unpowered bool
	cutIn     int // operations until the power is cut; 0 is never
	fault     func(op string) error

	// spoiled means that a failed fsync has destroyed sectors. No log survives the
	// later loss of acknowledged bytes, so nothing else fails until the next
	// fsync: the log has one chance to rewrite what shares a sector with the lost
	// bytes. For the same reason an fsync destroys nothing if something failed
	// since the last successful one.
	spoiled, failing bool
}

// simFile is a file: its pages in memory, and what the disk holds of them.
type simFile struct {
	page, disk []byte
	low        int // smallest size since the last sync
	dirty      map[int]bool
}

func newMachine(rng *rand.Rand) *machine {
	return &machine{rng: rng, dir: map[string]*simFile{}, saved: map[string]*simFile{}, small: map[string][]byte{}}
}

// step is called before every operation that changes something; its error is the
// operation's.
func (m *machine) step(op string) error {
	if m.unpowered {
		return errPower
	}
	if m.spoiled {
		return nil
	}
	if m.cutIn > 0 {
		if m.cutIn--; m.cutIn == 0 {
			m.unpowered = true
			return errPower
		}
	}
	if m.fault != nil {
		return m.fault(op)
	}
	return nil
}

// restart prepares the storage for the next process: after a power cut, or with all
// pages unchanged if only the process died.
func (m *machine) restart() {
	if m.unpowered {
		dir := map[string]*simFile{}
		for _, name := range m.names() {
			// A creation or removal that was not synced is on the disk or not.
			view := m.dir
			if m.rng.IntN(2) == 0 {
				view = m.saved
			}
			if p := view[name]; p != nil {
				dir[name] = p
			}
		}
		for _, name := range sorted(dir) {
			dir[name].cut(m.rng)
		}
		m.dir, m.saved = dir, clone(dir)
	}
	m.unpowered, m.cutIn, m.fault, m.spoiled, m.failing = false, 0, nil, false, false
}

func (m *machine) names() []string {
	all := clone(m.saved)
	for name, p := range m.dir {
		all[name] = p
	}
	return sorted(all)
}

func sorted(dir map[string]*simFile) []string {
	var names []string
	for name := range dir {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

func clone(dir map[string]*simFile) map[string]*simFile {
	c := map[string]*simFile{}
	for name, p := range dir {
		c[name] = p
	}
	return c
}

// cut leaves the file as after a power cut.
func (p *simFile) cut(rng *rand.Rand) {
	if rng.IntN(2) == 0 {
		p.resize()
	}
	for _, s := range p.sectors() {
		if rng.IntN(2) == 0 {
			p.flush(s)
		}
	}
	p.page, p.low, p.dirty = append([]byte(nil), p.disk...), len(p.disk), map[int]bool{}
}

func (p *simFile) sectors() []int {
	var all []int
	for s := range p.dirty {
		all = append(all, s)
	}
	sort.Ints(all)
	return all
}

// resize sets the size on the disk to that of the pages.
func (p *simFile) resize() {
	if len(p.disk) > p.low {
		p.disk = p.disk[:p.low:p.low]
	}
	for len(p.disk) < len(p.page) {
		p.disk = append(p.disk, make([]byte, len(p.page)-len(p.disk))...)
	}
}

func (p *simFile) flush(s int) {
	from, to := s*sector, min((s+1)*sector, len(p.page))
	if from >= to {
		return
	}
	if len(p.disk) < to {
		p.disk = append(p.disk, make([]byte, to-len(p.disk))...)
	}
	copy(p.disk[from:to], p.page[from:to])
}

func (m *machine) path() string { return "machine" }

func (m *machine) list() ([]string, error) {
	if m.unpowered {
		return nil, errPower
	}
	names := sorted(m.dir)
	for name := range m.small {
		names = append(names, name)
	}
	return names, nil
}

func (m *machine) open(name string) (file, error) {
	if m.unpowered {
		return nil, errPower
	}
	p := m.dir[name]
	if p == nil {
		return nil, fs.ErrNotExist
	}
	return &machineFile{m: m, p: p}, nil
}

func (m *machine) create(name string) (file, error) {
	if err := m.step("create"); err != nil {
		return nil, err
	}
	if m.dir[name] != nil {
		return nil, fs.ErrExist
	}
	p := &simFile{dirty: map[int]bool{}}
	m.dir[name] = p
	return &machineFile{m: m, p: p}, nil
}

func (m *machine) remove(name string) error {
	if err := m.step("remove"); err != nil {
		return err
	}
	if m.dir[name] == nil {
		return fs.ErrNotExist
	}
	delete(m.dir, name)
	return nil
}

func (m *machine) syncDir() error {
	if err := m.step("sync directory"); err != nil {
		return err
	}
	m.saved = clone(m.dir)
	return nil
}

func (m *machine) read(name string) ([]byte, error) {
	if data, ok := m.small[name]; ok {
		return data, nil
	}
	return nil, fs.ErrNotExist
}

func (m *machine) replace(name string, data []byte) error {
	if err := m.step("replace"); err != nil {
		return err
	}
	m.small[name] = data
	return nil
}

func (m *machine) close() error { return nil }

type machineFile struct {
	m      *machine
	p      *simFile
	closed bool
}

func (f *machineFile) ReadAt(b []byte, off int64) (int, error) {
	if f.m.unpowered {
		return 0, errPower
	}
	if f.closed {
		return 0, fs.ErrClosed
	}
	if off >= int64(len(f.p.page)) {
		return 0, io.EOF
	}
	n := copy(b, f.p.page[off:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func (f *machineFile) WriteAt(b []byte, off int64) (int, error) {
	err := f.m.step("write")
	f.m.failing = f.m.failing || err != nil
	if f.closed {
		return 0, fs.ErrClosed
	}
	if err != nil {
		b = b[:f.m.rng.IntN(len(b)+1)]
	}
	f.grow(int(off) + len(b))
	copy(f.p.page[off:], b)
	f.markDirty(int(off), int(off)+len(b))
	return len(b), err
}

func (f *machineFile) markDirty(from, to int) {
	for s := from / sector; s*sector < to; s++ {
		f.p.dirty[s] = true
	}
}

func (f *machineFile) grow(size int) {
	if len(f.p.page) < size {
		f.p.page = append(f.p.page, make([]byte, size-len(f.p.page))...)
	}
}

func (f *machineFile) Close() error {
	if f.closed {
		return fs.ErrClosed
	}
	f.closed = true
	return nil
}

func (f *machineFile) size() (int64, error) { return int64(len(f.p.page)), nil }

func (f *machineFile) truncate(size int64) error {
	if err := f.m.step("truncate"); err != nil {
		f.m.failing = true
		return err
	}
	f.grow(int(size))
	f.p.page = f.p.page[:size:size]
	f.p.low = min(f.p.low, int(size))
	return nil
}

func (f *machineFile) sync() error {
	err := f.m.step("sync")
	if f.m.unpowered {
		return err
	}
	p := f.p
	spoils := !f.m.failing
	f.m.spoiled, f.m.failing = false, err != nil
	p.resize()
	for _, s := range p.sectors() {
		if err == nil {
			p.flush(s)
			continue
		}
		// Written or not, or spoiled; clean in any case.
		switch f.m.rng.IntN(3) {
		case 0:
			p.flush(s)
		case 1:
			if !spoils {
				break
			}
			f.m.spoiled = true
			for i := s * sector; i < min((s+1)*sector, len(p.disk)); i++ {
				p.disk[i] = byte(f.m.rng.Uint32())
			}
		}
	}
	p.low, p.dirty = len(p.page), map[int]bool{}
	if err != nil && f.m.rng.IntN(2) == 0 {
		p.page = append([]byte(nil), p.disk...) // the pages were dropped
	}
	return err
}

func (f *machineFile) allocate(from, size int64) {
	if f.m.step("allocate") == nil {
		f.grow(int(size))
		f.markDirty(int(from), int(size))
	}
}

func someErrno(rng *rand.Rand) error {
	if rng.IntN(2) == 0 {
		return fmt.Errorf("simulated: %w", syscall.ENOSPC)
	}
	return fmt.Errorf("simulated: %w", syscall.EIO)
}
