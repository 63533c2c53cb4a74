//go:build linux

package attack

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"
)

// restart is the start of a broker that was killed, or that ended with a full disk.
type restart struct {
	took time.Duration
	log  int64 // bytes of its log
}

// restart starts a broker that has ended.
func (c *cluster) restart(broker int) error {
	size, err := logSize(c.kafka.Data(broker))
	if err != nil {
		return err
	}
	began := time.Now()
	if err := c.kafka.Restart(broker); err != nil {
		return fmt.Errorf("%w; the logs of all brokers: %s", err, c.kafka.Log())
	}
	c.restarts = append(c.restarts, restart{time.Since(began), size})
	return nil
}

// slowest is the restart that took longest.
func (c *cluster) slowest() restart {
	return slices.MaxFunc(c.restarts, func(a, b restart) int { return cmp.Compare(a.took, b.took) })
}

// logSize is the size of all segments of a broker.
func logSize(dir string) (n int64, err error) {
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".log" {
			return err
		}
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			n += info.Size()
		}
		return err
	})
	return n, err
}
