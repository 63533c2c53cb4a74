package azurecheckpoints

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"

	"github.com/sluice-go/sluice/driver"
)

// Bounds of what is read.
const (
	mostBlobs   = 100_000
	mostContent = 1 << 20 // of one JSON checkpoint
)

// ownedFor is how long an owner of the current SDKs counts as active after its last renewal: they
// renew about every 10 s, and take over from each other after 30 s to 2 minutes.
const ownedFor = time.Minute

// Checkpoint is a checkpoint of one partition.
type Checkpoint struct {
	Partition string
	Blob      string // its name
	Sequence  int64  // of the last event that was processed; -1 if only the offset is known, or Origin is true
	Offset    string // the same event's; empty if not known
	Origin    bool   // no event was processed yet
	Updated   time.Time
	Owner     string // the processor that is still active, if any
	Fixed     bool   // a fixed-partition processor's: Blob has the offset as its content
}

// Found is what a container holds for one consumer group.
type Found struct {
	Checkpoints []Checkpoint // by partition, at most one each
	// Owners are the processors that are still active, by partition. A partition without a
	// checkpoint can have one.
	Owners map[string]string
	Others []string // consumer groups of other hubs, or of this one, that have checkpoints: namespace/hub/group
}

// way is how a kind of processor names its checkpoints.
type way struct {
	partition func(name string, g driver.Group) (string, bool) // of a blob; false if it is none
	// read reads a checkpoint from the blob's content; nil: it is in the metadata.
	read    func(c *Checkpoint, content []byte) (there bool, err error)
	holder  string // who holds the lease of a blob with content, if its metadata does not say so
	anybody bool   // the name says neither hub nor group
}

// ways are the kinds of checkpoints. The first one that a partition has counts, as it does for
// Functions.
var ways = []way{
	{partition: folder(func(g driver.Group) []string { return []string{g.Namespace, g.Topic, g.Name, "checkpoint"} })},
	{partition: folder(func(g driver.Group) []string { return []string{g.Namespace, g.Topic, g.Name} }), read: (*Checkpoint).decode, holder: host},
	{partition: folder(func(g driver.Group) []string { return []string{g.Topic, g.Name} }), read: (*Checkpoint).decode, holder: host},
	{partition: folder(func(g driver.Group) []string { return []string{g.Name} }), read: (*Checkpoint).decode, holder: host},
	{partition: dapr, read: (*Checkpoint).decode, holder: host},
	{partition: folder(ownership), read: (*Checkpoint).readOffset, holder: "a fixed-partition processor"},
	{partition: func(name string, _ driver.Group) (string, bool) { return name, number(name) }, read: (*Checkpoint).decode, holder: host, anybody: true},
}

// host is the holder of a lease whose blob does not name it.
const host = "an EventProcessorHost"

// ownership is the folder of the current SDKs' ownerships, and of a fixed-partition processor's
// offsets.
func ownership(g driver.Group) []string {
	return []string{g.Namespace, g.Topic, g.Name, "ownership"}
}

// folder finds the blobs directly in a folder.
func folder(of func(g driver.Group) []string) func(string, driver.Group) (string, bool) {
	return func(name string, g driver.Group) (string, bool) { return nameInFolder(name, of(g)) }
}

// dapr finds dapr-hub-group-partition.
func dapr(name string, g driver.Group) (string, bool) {
	start := "dapr-" + g.Topic + "-" + g.Name + "-"
	if len(name) < len(start) || !strings.EqualFold(name[:len(start)], start) {
		return "", false
	}
	partition := name[len(start):]
	return partition, number(partition)
}

// number reports whether a text is a partition's number.
func number(text string) bool {
	_, err := strconv.ParseUint(text, 10, 16)
	return err == nil
}

// blob is a blob of a listing.
type blob struct {
	name     string
	updated  time.Time
	now      time.Time // of the listing
	leased   bool
	size     int64
	metadata map[string]string // names in lower case
}

// Read finds the checkpoints of a consumer group in a container. Names are compared
// case-insensitively, after the prefix. Errors are the SDK's.
func Read(ctx context.Context, client *container.Client, prefix string, group driver.Group) (Found, error) {
	var found Found
	blobs, err := list(ctx, client, prefix)
	if err != nil {
		return found, err
	}
	// Names that differ in case are of the same partition: Go's SDK keeps the case, all others
	// write lower case, and blobstore.Mirror writes both. The newest counts.
	slices.SortStableFunc(blobs, func(a, b blob) int { return b.updated.Compare(a.updated) })
	found.Owners = owners(blobs, prefix, group)
	seen := make(map[string]bool)
	for _, way := range ways {
		if way.anybody && len(seen) > 0 {
			continue // another group's: this one has checkpoints with its name
		}
		for _, b := range blobs {
			partition, ok := way.partition(b.name[len(prefix):], group)
			if !ok || seen[partition] || (way.read != nil) != (b.size > 0) {
				continue
			}
			c := Checkpoint{Partition: partition, Blob: b.name, Sequence: -1, Updated: b.updated, Owner: found.Owners[partition]}
			var there bool
			if way.read != nil {
				there, err = c.parse(ctx, client, b, way.read)
			} else {
				there, err = c.take(b.metadata)
			}
			if err != nil {
				return found, fmt.Errorf("blob %s: %w", b.name, err)
			}
			if there {
				seen[partition] = true
				found.Checkpoints = append(found.Checkpoints, c)
			}
		}
	}
	slices.SortFunc(found.Checkpoints, func(a, b Checkpoint) int { return compare(a.Partition, b.Partition) })
	found.Others = others(blobs, prefix, group)
	return found, nil
}

// compare puts numbers in their order.
func compare(a, b string) int {
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	return strings.Compare(a, b)
}

func list(ctx context.Context, client *container.Client, prefix string) ([]blob, error) {
	var all []blob
	pages := client.NewListBlobsFlatPager(&container.ListBlobsFlatOptions{Prefix: &prefix, Include: container.ListBlobsInclude{Metadata: true}})
	for pages.More() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		if page.Segment == nil {
			return nil, errors.New("the answer of Azure Storage has no list of blobs")
		}
		now := time.Now()
		if page.Date != nil {
			now = *page.Date
		}
		for _, item := range page.Segment.BlobItems {
			if item == nil || item.Name == nil || item.Properties == nil || !strings.HasPrefix(*item.Name, prefix) {
				continue
			}
			b := blob{name: *item.Name, now: now, metadata: make(map[string]string)}
			p := item.Properties
			if p.LastModified != nil {
				b.updated = p.LastModified.UTC()
			}
			if p.ContentLength != nil {
				b.size = *p.ContentLength
			}
			b.leased = p.LeaseState != nil && *p.LeaseState == lease.StateTypeLeased
			for name, value := range item.Metadata {
				if value != nil {
					b.metadata[strings.ToLower(name)] = *value
				}
			}
			if all = append(all, b); len(all) > mostBlobs {
				return nil, fmt.Errorf("the container has more than %d blobs: check that it is the container of the checkpoints", mostBlobs)
			}
		}
	}
	return all, nil
}

// nameInFolder reports whether a blob is directly in a folder, and returns its name there.
func nameInFolder(name string, folder []string) (string, bool) {
	parts := strings.Split(name, "/")
	if len(parts) != len(folder)+1 || parts[len(folder)] == "" {
		return "", false
	}
	for i, f := range folder {
		if !same(parts[i], f) {
			return "", false
		}
	}
	return parts[len(folder)], true
}

// same compares names. The SDKs keep the port of an emulator's address, Sluice does not.
func same(found, want string) bool {
	address, _, _ := strings.Cut(found, ":")
	wanted, _, _ := strings.Cut(want, ":")
	return strings.EqualFold(address, wanted)
}

// owners are the active processors, by partition.
func owners(blobs []blob, prefix string, g driver.Group) map[string]string {
	list := make(map[string]string)
	for _, b := range blobs {
		name := b.name[len(prefix):]
		if p, ok := nameInFolder(name, ownership(g)); ok {
			if owner := b.metadata["ownerid"]; owner != "" && list[p] == "" && b.now.Sub(b.updated) < ownedFor {
				list[p] = owner
			}
		}
		for _, way := range ways {
			if p, ok := way.partition(name, g); ok && way.read != nil && b.leased && list[p] == "" {
				list[p] = cmp.Or(b.metadata["owninghost"], way.holder)
			}
		}
	}
	return list
}

// others are the other consumer groups with checkpoints of the current SDKs.
func others(blobs []blob, prefix string, g driver.Group) []string {
	var list []string
	for _, b := range blobs {
		name := b.name[len(prefix):]
		parts := strings.Split(name, "/")
		if _, ours := ways[0].partition(name, g); len(parts) == 5 && parts[3] == "checkpoint" && !ours {
			list = append(list, strings.Join(parts[:3], "/"))
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// take reads a checkpoint of the current SDKs. There is false if it has no position.
func (c *Checkpoint) take(metadata map[string]string) (there bool, err error) {
	c.Offset = offset(metadata["offset"])
	if text := metadata["sequencenumber"]; text != "" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return false, errors.New("its sequence number is not a number")
		}
		c.Sequence = max(n, -1) // .NET: the smallest number stands for none
	}
	return c.Sequence >= 0 || c.Offset != "", nil
}

// offset returns an offset as it was written, or nothing if the text is none: .NET writes "no
// offset", and others where they would begin.
func offset(text string) string {
	if strings.ContainsAny(text, " ") || text == "-1" || text == "@latest" {
		return ""
	}
	return text
}

// parse reads a checkpoint that is the content of a blob. There is false for the lease of a
// partition that has no checkpoint yet.
func (c *Checkpoint) parse(ctx context.Context, client *container.Client, b blob, read func(*Checkpoint, []byte) (bool, error)) (there bool, err error) {
	got, err := client.NewBlobClient(b.name).DownloadStream(ctx, nil)
	if err != nil {
		return false, err
	}
	defer got.Body.Close()
	content, err := io.ReadAll(io.LimitReader(got.Body, mostContent))
	if err != nil {
		return false, err
	}
	return read(c, content)
}

// readOffset reads the checkpoint of a fixed-partition processor: the offset of the last event that
// is done, as a number.
func (c *Checkpoint) readOffset(content []byte) (there bool, err error) {
	n, err := strconv.ParseInt(strings.TrimSpace(string(content)), 10, 64)
	if err != nil || n < -1 {
		return false, errors.New("its content is not an offset: a fixed-partition processor writes a number")
	}
	c.Offset, c.Fixed = offset(strconv.FormatInt(n, 10)), true
	return c.Offset != "", nil
}

func (c *Checkpoint) decode(content []byte) (there bool, err error) {
	type position struct { // encoding/json takes names in any case
		Offset         any
		SequenceNumber json.Number
	}
	var lease struct {
		position
		PartitionID       any
		Checkpoint        *position   // Go
		PythonPartitionID any         `json:"partition_id"`
		PythonSequence    json.Number `json:"sequence_number"`
	}
	if json.Unmarshal(content, &lease) != nil {
		return false, nil // something else
	}
	for _, of := range []any{lease.PartitionID, lease.PythonPartitionID} {
		if text, ok := of.(string); ok && text != "" && text != c.Partition {
			return false, nil
		}
	}
	if lease.Checkpoint != nil {
		lease.position = *lease.Checkpoint
	}
	lease.SequenceNumber = cmp.Or(lease.SequenceNumber, lease.PythonSequence)
	switch o := lease.Offset.(type) {
	case string:
		c.Offset = offset(o)
	case float64:
		c.Offset = strconv.FormatFloat(o, 'f', -1, 64)
	}
	n, err := strconv.ParseInt(lease.SequenceNumber.String(), 10, 64)
	if err != nil || n < 0 || n == 0 && c.Offset == "" { // 0 without an offset: none yet
		n = -1
	}
	c.Sequence = n
	return c.Sequence >= 0 || c.Offset != "", nil
}
