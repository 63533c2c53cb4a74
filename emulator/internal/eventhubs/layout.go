package eventhubs

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-go/sluice/emulator/internal/disklog"
)

// A hub's directory holds its description and one directory per incarnation,
// named by the creation time in milliseconds, with one log per partition:
//
//	flights/hub.json
//	flights/1763719200000/0/…
//
// hub.json is replaced atomically and names the current incarnation; Open removes
// others, which an interrupted deletion has left.
const descriptionFile = "hub.json"

type description struct {
	Created    time.Time `json:"created"`
	Partitions int       `json:"partitions"`
}

func (b *Broker) hubDir(c Config) string { return filepath.Join(b.dir, strings.ToLower(c.Name)) }

func (b *Broker) incarnationDir(c Config, created time.Time) string {
	return filepath.Join(b.hubDir(c), strconv.FormatInt(created.UnixMilli(), 10))
}

// openHub opens a hub from disk, or creates it.
func (b *Broker) openHub(c Config) (*Hub, error) {
	if b.dir == "" {
		return b.createHub(c, b.timestamp())
	}
	path := filepath.Join(b.hubDir(c), descriptionFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return b.createHub(c, b.timestamp())
	}
	if err != nil {
		return nil, fmt.Errorf("open event hub %s: %w", c.Name, err)
	}
	var d description
	if err := json.Unmarshal(text, &d); err != nil || d.Partitions < 1 || d.Created.IsZero() {
		return nil, fmt.Errorf("open event hub %s: %s is damaged: restore it from a backup, or remove its directory to start empty", c.Name, path)
	}
	if c.Partitions < d.Partitions {
		return nil, &ShrinkError{Hub: c.Name, Has: d.Partitions, Want: c.Partitions}
	}
	if err := b.removeOldIncarnations(c, d); err != nil {
		return nil, fmt.Errorf("open event hub %s: %w", c.Name, err)
	}
	h, err := b.openPartitions(c, d.Created)
	if err != nil {
		return nil, err
	}
	if c.Partitions > d.Partitions {
		if err := b.writeDescription(h); err != nil {
			return nil, errors.Join(err, h.close())
		}
	}
	return h, nil
}

// createHub creates a new incarnation of a hub, which replaces the one that hub.json
// named before.
func (b *Broker) createHub(c Config, created time.Time) (*Hub, error) {
	h, err := b.openPartitions(c, created)
	if err != nil {
		return nil, err
	}
	if b.dir == "" {
		return h, nil
	}
	if err := b.writeDescription(h); err != nil {
		return nil, errors.Join(err, h.close())
	}
	return h, nil
}

func (b *Broker) openPartitions(c Config, created time.Time) (*Hub, error) {
	h := newHub(c, created.UTC())
	for i := range c.Partitions {
		id := strconv.Itoa(i)
		dir := ""
		if b.dir != "" {
			dir = filepath.Join(b.incarnationDir(c, created), id)
		}
		log, err := disklog.Open(dir, &b.log)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("open partition %s of %s: %w", id, c.Name, err), h.close())
		}
		h.partitions = append(h.partitions, &Partition{hub: h, id: id, log: log})
		h.ids = append(h.ids, id)
	}
	return h, nil
}

func (b *Broker) writeDescription(h *Hub) error {
	text, err := json.Marshal(description{Created: h.created, Partitions: len(h.partitions)})
	if err != nil {
		return fmt.Errorf("describe event hub %s: %w", h.name, err)
	}
	if err := disklog.ReplaceFile(filepath.Join(b.hubDir(h.config), descriptionFile), text); err != nil {
		return fmt.Errorf("describe event hub %s: %w", h.name, err)
	}
	return nil
}

// removeOldIncarnations removes the incarnations that d doesn't name.
func (b *Broker) removeOldIncarnations(c Config, d description) error {
	entries, err := os.ReadDir(b.hubDir(c))
	if err != nil {
		return err
	}
	keep := filepath.Base(b.incarnationDir(c, d.Created))
	for _, e := range entries {
		if _, err := strconv.ParseInt(e.Name(), 10, 64); err != nil || !e.IsDir() || e.Name() == keep {
			continue
		}
		if err := os.RemoveAll(filepath.Join(b.hubDir(c), e.Name())); err != nil {
			return err
		}
	}
	return nil
}
