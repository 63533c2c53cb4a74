package eventhubs

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/internal/partitionkey"
)

// DefaultGroup is the consumer group that every hub has.
const DefaultGroup = "$Default"

const (
	maxPartitions = 1024
	maxNameLength = 256
)

// Hub is one incarnation of an event hub: after [Broker.Recreate], get the new one
// from [Broker.Hub].
type Hub struct {
	name       string
	created    time.Time
	config     Config
	groups     map[string]bool // lower-case; empty if every name is a group
	partitions []*Partition
	ids        []string
	roundRobin atomic.Uint64
}

func newHub(c Config, created time.Time) *Hub {
	h := &Hub{name: c.Name, created: created, config: c, groups: make(map[string]bool)}
	for _, g := range c.ConsumerGroups {
		h.groups[strings.ToLower(g)] = true
	}
	return h
}

// Name returns the hub's name as it was configured.
func (h *Hub) Name() string { return h.name }

// Created returns when the hub was created, in whole milliseconds. It
// distinguishes the incarnations of a hub.
func (h *Hub) Created() time.Time { return h.created }

// PartitionIDs returns "0" to "n-1".
func (h *Hub) PartitionIDs() []string { return append([]string(nil), h.ids...) }

// HasGroup reports whether the hub has the consumer group, ignoring case.
func (h *Hub) HasGroup(name string) bool {
	if len(h.groups) == 0 || strings.EqualFold(name, DefaultGroup) {
		return name != ""
	}
	return h.groups[strings.ToLower(name)]
}

// Partition returns a partition by its id.
func (h *Hub) Partition(id string) (*Partition, bool) {
	n, err := strconv.Atoi(id)
	if err != nil || n < 0 || n >= len(h.partitions) || h.ids[n] != id {
		return nil, false
	}
	return h.partitions[n], true
}

// Pick returns the partition of a partition key, as Azure's client libraries choose
// it, or the next one round-robin if key is "".
func (h *Hub) Pick(key string) *Partition {
	if key == "" {
		n := h.roundRobin.Add(1) - 1
		return h.partitions[n%uint64(len(h.partitions))]
	}
	return h.partitions[partitionkey.EventHubsPartition(key, len(h.partitions))]
}

// delete closes the hub's logs, and makes its partitions return ErrDeleted.
func (h *Hub) delete() error {
	for _, p := range h.partitions {
		p.deleted.Store(true)
	}
	return h.close()
}

func (h *Hub) close() error {
	var errs []error
	for _, p := range h.partitions {
		errs = append(errs, p.log.Close())
	}
	return errors.Join(errs...)
}

func (c Config) validate() error {
	if c.Partitions < 1 || c.Partitions > maxPartitions {
		return fmt.Errorf("event hub %q: %d partitions: configure 1 to %d", c.Name, c.Partitions, maxPartitions)
	}
	outer := func(r byte) bool { return r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' }
	valid := c.Name != "" && len(c.Name) <= maxNameLength && outer(c.Name[0]) && outer(c.Name[len(c.Name)-1])
	for i := 0; valid && i < len(c.Name); i++ {
		valid = outer(c.Name[i]) || strings.IndexByte("._-", c.Name[i]) >= 0
	}
	if !valid {
		return fmt.Errorf("event hub %q: a name has up to %d letters, digits, '.', '-' and '_', with a letter or digit at both ends", c.Name, maxNameLength)
	}
	for _, g := range c.ConsumerGroups {
		if g == "" || len(g) > maxNameLength {
			return fmt.Errorf("event hub %q: consumer group %q: a name has 1 to %d characters", c.Name, g, maxNameLength)
		}
	}
	return nil
}
