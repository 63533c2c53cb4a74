package disklog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"testing"
)

// remake opens a log that consists of the given files, with small segments.
func remake(t *testing.T, files map[string][]byte, state []byte) (*Log, *memory, error) {
	t.Helper()
	store := newMemory()
	for name, content := range files {
		f, err := store.create(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt(content, 0); err != nil {
			t.Fatal(err)
		}
	}
	if state != nil {
		if err := store.replace(stateFile, state); err != nil {
			t.Fatal(err)
		}
	}
	config, err := (&Config{Now: fixedTime, SegmentBytes: 400}).withDefaults("")
	if err != nil {
		t.Fatal(err)
	}
	l, err := openStorage(store, config)
	return l, store, err
}

// contents are the files of a storage, by name.
func contents(t *testing.T, store *memory) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for name := range store.files {
		f, err := store.open(name)
		if err != nil {
			t.Fatal(err)
		}
		size, err := f.size()
		if err != nil {
			t.Fatal(err)
		}
		files[name] = make([]byte, size)
		if _, err := f.ReadAt(files[name], 0); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// readAll reads until the end or the first damage.
func readAll(t *testing.T, l *Log) ([]Stored, error) {
	t.Helper()
	var all []Stored
	for next := l.Info().First; ; {
		got, err := l.Read(next, 100, math.MaxInt, nil)
		var damage *CorruptError
		if err != nil && !errors.As(err, &damage) {
			t.Fatalf("read event %d: %v", next, err)
		}
		if len(got) == 0 {
			return all, err
		}
		all = append(all, got...)
		next = got[len(got)-1].Sequence + 1
	}
}

// FuzzDamage writes a log and damages its files: what is read is what was written,
// whole batches from the first on, up to the reported damage; and appends after
// that work. The script is: the number of batches, their sizes,
// then the damage in steps of five bytes: what, which file, where (2), how much.
func FuzzDamage(f *testing.F) {
	f.Add([]byte{3, 1, 2, 3, 0, 0, 0, 70, 1})
	f.Add([]byte{9, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 1, 0, 64, 40})
	f.Add([]byte{4, 3, 3, 3, 3, 2, 255, 0, 100, 0})
	f.Add([]byte{4, 3, 3, 3, 3, 3, 0, 0, 64, 120, 0, 0, 0, 12, 7})
	f.Fuzz(func(t *testing.T, script []byte) {
		take := func() (b byte) {
			if len(script) > 0 {
				b, script = script[0], script[1:]
			}
			return b
		}
		l, store, err := remake(t, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		var sent []string
		boundary := map[int]bool{0: true}
		for range take() % 16 {
			var batch []string
			size := take()
			for range 1 + size%4 {
				batch = append(batch, fmt.Sprintf("%d%s", len(sent)+len(batch), bytes.Repeat([]byte{'x'}, int(size/4))))
			}
			mustAppend(t, l, batch...)
			sent = append(sent, batch...)
			boundary[len(sent)] = true
		}
		mustClose(t, l)
		state := store.small[stateFile]
		files := contents(t, store)
		var names []string
		for n := range int64(len(sent) + 1) {
			if _, ok := files[segmentName(n)]; ok {
				names = append(names, segmentName(n))
			}
		}
		for len(script) > 0 && len(names) > 0 {
			kind, which := take(), take()
			at, n := int(take())<<8|int(take()), int(take())
			name := names[int(which)%len(names)]
			b := files[name]
			at = min(at, len(b))
			n = min(n, len(b)-at)
			switch kind % 5 {
			case 0: // change a bit
				if at < len(b) {
					b[at] ^= 1 << (n % 8)
				}
			case 1:
				clear(b[at : at+n])
			case 2:
				files[name] = b[:at]
			case 3: // write to another place
				copy(b[at:], bytes.Clone(b[len(b)-n:]))
			case 4: // the machine died before the state was saved
				state = nil
			}
		}

		l, _, err = remake(t, files, state)
		var damage *CorruptError
		if err != nil {
			if !errors.As(err, &damage) {
				t.Fatalf("open: %v", err)
			}
			return
		}
		defer l.Close()
		got, err := readAll(t, l)
		for i := range got {
			if i >= len(sent) || string(got[i].Payload) != sent[i] || got[i].Sequence != int64(i) {
				t.Fatalf("event %d is %d %q, of %q", i, got[i].Sequence, got[i].Payload, sent)
			}
		}
		if err != nil {
			return
		}
		if !boundary[len(got)] {
			t.Fatalf("%d events are left: half a batch", len(got))
		}
		if first := mustAppend(t, l, "more"); first != int64(len(got)) {
			t.Fatalf("event %d follows %d events", first, len(got))
		}
		if again, err := readAll(t, l); err != nil || len(again) != len(got)+1 || string(again[len(got)].Payload) != "more" {
			t.Fatalf("after one more: %d events, %v", len(again), err)
		}
	})
}

// FuzzRecover opens files that no log has written. With repair their checksums are
// right, so that all other checks are reached.
func FuzzRecover(f *testing.F) {
	content := image(f, func(l *Log) {
		mustAppend(f, l, "one", "two")
		mustAppend(f, l, "three")
	})
	f.Add(content, []byte(`{"first":1,"next":3}`), true)
	f.Add(content[:segmentHeader], []byte(`{}`), false)
	f.Add(content[:len(content)-1], []byte(nil), false)
	f.Add([]byte{}, []byte(`{"first":-1}`), true)
	f.Fuzz(func(t *testing.T, file, state []byte, repair bool) {
		if len(state) == 0 {
			state = nil
		}
		if repair {
			file = repaired(file)
		}
		l, store, err := remake(t, map[string][]byte{segmentName(0): file}, state)
		var damage *CorruptError
		if err != nil {
			if !errors.As(err, &damage) {
				t.Fatalf("open: %v", err)
			}
			return
		}
		before, err := readAll(t, l)
		if err != nil {
			t.Fatalf("recovered, yet %v", err)
		}
		info := l.Info()
		if n := info.Last - info.First + 1; n != int64(len(before)) || n > int64(len(file)/recordHeader) {
			t.Fatalf("%d events read of %+v, in %d bytes", len(before), info, len(file))
		}
		for _, e := range before {
			if next, err := l.SeekTime(e.Enqueued.UnixMilli()); err != nil || next > e.Sequence {
				t.Fatalf("event %d of %v is before what is found by its time: %d, %v", e.Sequence, e.Enqueued, next, err)
			}
		}
		mustClose(t, l)
		again, _, err := remake(t, contents(t, store), store.small[stateFile])
		if err != nil {
			t.Fatalf("opened once, but not twice: %v", err)
		}
		defer mustClose(t, again)
		after, err := readAll(t, again)
		if err != nil || sameEvents(after, before) != nil {
			t.Fatalf("%d events became %d, %v, %v", len(before), len(after), err, sameEvents(after, before))
		}
	})
}

// repaired makes the header that of the first segment, and gives it and the
// records after it the right checksums.
func repaired(file []byte) []byte {
	b := append(bytes.Clone(file), make([]byte, max(0, segmentHeader-len(file)))...)
	copy(b, segmentMagic)
	clear(b[16:24])
	binary.LittleEndian.PutUint32(b[8:], crc32.Checksum(b[12:segmentHeader], castagnoli))
	mark, position := binary.LittleEndian.Uint32(b[12:]), int64(binary.LittleEndian.Uint64(b[24:]))
	for at := segmentHeader; at+recordHeader <= len(b); {
		binary.LittleEndian.PutUint32(b[at:], mark)
		size := int(binary.LittleEndian.Uint32(b[at+8:]))
		if size < recordHeader || size > len(b)-at {
			return b
		}
		binary.LittleEndian.PutUint32(b[at+4:], checksum(b[at:at+size], position+int64(at-segmentHeader)))
		at += size
	}
	return b
}
