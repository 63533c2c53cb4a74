package blobstore

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/publisher"
)

// ErrProcessorActive: a processor of an Azure SDK owns partitions of the consumer group.
var ErrProcessorActive = errors.New("a processor of an Azure SDK is active")

// ErrOtherCheckpoint: a blob holds the checkpoint of another program, which is further.
var ErrOtherCheckpoint = errors.New("the checkpoint of another program")

// ErrLaterOwner: a blob holds the checkpoint of an owner with a later lease, which is further,
// while this process has the lease: either it was stopped for so long that it has lost the lease
// without knowing, or the store's leases and checkpoints are older than the blob.
var ErrLaterOwner = errors.New("the checkpoint of a later owner")

const (
	mirrorTimeout  = 15 * time.Second // of one publication
	mirrorStart    = 5 * time.Second  // of the check at the start
	mirrorParallel = 8                // requests at a time
	// processorOwns is how long an SDK's processor counts as active after it has renewed an
	// ownership. They renew about every 10 s, and take over from each other after 30 s to 2
	// minutes.
	processorOwns = time.Minute
)

// The metadata of a checkpoint's blob. The SDKs read the first two.
const (
	metaSequence = "sequencenumber"
	metaOffset   = "offset"
	metaEpoch    = "sluiceepoch" // of the lease under which the checkpoint was stored
)

// beginning is the offset before the first event, in all SDKs.
const beginning = "-1"

// MirrorConfig has the settings of a [Mirror]. The zero value is ready to use.
type MirrorConfig struct {
	// Every is the time between two writes of a partition's checkpoint. Default: 5 seconds.
	Every time.Duration
	// Observer gets failures, as [driver.KindHookFailed]: the first one, and no more until a write
	// succeeds. Default: none.
	Observer driver.Observer
}

// Mirror copies checkpoints into blobs as the event processors of the Azure SDKs keep them, for the
// way back to these, and for programs that compute the lag from such blobs, such as KEDA. It is an
// observer:
//
//	mirror, err := blobstore.NewMirror(ctx, client, group, nil)
//	defer mirror.Close(ctx)
//	consumer, err := sluice.New(source, leases, delivery, &sluice.Config{Observer: driver.Observers(mirror, others)})
//
// The consumer's own store may be any. Each checkpoint is copied after it was stored, at an
// interval and in Close, so the copy is never ahead of the checkpoint, and may be behind: who goes
// on from it repeats events and loses none. Failures do not affect the consumer; what was not
// written is tried again.
//
// The blob of partition P is NAMESPACE/HUB/GROUP/checkpoint/P. It is empty and has metadata:
// sequencenumber and offset, of the last event that is done, and sluiceepoch. The offset is -1, the
// beginning of the log, while no event is done, and while it is not known: between `checkpoints
// set` to a sequence number and the next event that is done. All SDKs but Go's, and KEDA, have the
// names in lower case; if a name has upper case (as $Default), there are two blobs. A namespace
// with a port, which only emulators have, adds one without it.
//
// A former owner of a partition does not change a copy that the next owner has written. Only one
// that does not know yet that it has lost the partition can move it forward, if the checkpoint was
// set back meanwhile; the next write of the new owner corrects that. What other programs have
// written is not moved back; see [ErrOtherCheckpoint]. If the store is restored from a backup, or
// exchanged, its checkpoints and leases may be older than the copy, which then stays where it is
// and is reported; see [ErrLaterOwner].
//
// A Mirror is safe for concurrent use.
type Mirror struct {
	*publisher.Publisher
	client *container.Client
	group  driver.Group

	mu    sync.Mutex
	known map[string]copied // by the blob's name
}

// copied is what a blob holds.
type copied struct {
	etag     *azcore.ETag // nil: there is no blob
	sequence int64
	certain  bool  // sequence is known
	epoch    int64 // if it is ours
	ours     bool
}

// NewMirror returns a mirror of the checkpoints of a consumer group, which works until Close. The
// group has the names that the SDKs use: the namespace is its host, NAME.servicebus.windows.net. A
// missing container is created. There is an error if the service refuses access, and
// [ErrProcessorActive]; if it does not answer within 5 seconds, the mirror tries later. cfg may be
// nil.
func NewMirror(ctx context.Context, client *container.Client, group driver.Group, cfg *MirrorConfig) (*Mirror, error) {
	var c MirrorConfig
	if cfg != nil {
		c = *cfg
	}
	if group.Namespace == "" || group.Topic == "" || group.Name == "" {
		return nil, fmt.Errorf("mirror of checkpoints: the group %s lacks a name", group)
	}
	m := &Mirror{client: client, group: group, known: map[string]copied{}}
	if err := m.begin(ctx); err != nil {
		return nil, err
	}
	m.Publisher = publisher.Start(publisher.Config{
		What: "mirror checkpoints into container " + place(client), Every: cmp.Or(c.Every, 5*time.Second), Timeout: mirrorTimeout,
		Publish: m.publish, Observer: c.Observer,
	})
	return m, nil
}

// WriteCheckpoints writes checkpoints of a group once, as a [Mirror] does, for a processor of an
// SDK that continues there. The consumer must have stopped. The error is an [ErrProcessorActive],
// [ErrOtherCheckpoint] or [ErrLaterOwner] where a Mirror has these, and what was written before it
// stays.
func WriteCheckpoints(ctx context.Context, client *container.Client, group driver.Group, list []driver.Checkpoint) error {
	m := &Mirror{client: client, group: group, known: map[string]copied{}}
	if err := m.begin(ctx); err != nil {
		return err
	}
	due := make(map[string]publisher.Checkpoint, len(list))
	for _, c := range list {
		if c.Position != driver.Unset {
			due[c.Partition] = publisher.Checkpoint{Position: c.Position, Epoch: c.Epoch, Held: true}
		}
	}
	return m.publish(ctx, due)
}

// begin checks the container, as far as it answers.
func (m *Mirror) begin(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, mirrorStart)
	defer cancel()
	err := (&Store{client: m.client}).prepare(ctx)
	for _, folder := range m.folders("ownership") {
		if err == nil {
			err = m.ownerless(ctx, folder)
		}
	}
	var refused *refusal
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrProcessorActive), errors.As(err, &refused) && refused.status < http.StatusInternalServerError && refused.status != http.StatusTooManyRequests:
		return fmt.Errorf("container %s: %w", place(m.client), err)
	}
	return nil // it does not answer: later
}

// ownerless returns ErrProcessorActive if a blob in a folder says that a partition has an owner.
func (m *Mirror) ownerless(ctx context.Context, folder string) error {
	pages := m.client.NewListBlobsFlatPager(&container.ListBlobsFlatOptions{Prefix: &folder, Include: container.ListBlobsInclude{Metadata: true}})
	for pages.More() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return safeError(err)
		}
		now := time.Now()
		if page.Date != nil {
			now = *page.Date
		}
		for _, item := range page.Segment.BlobItems {
			owner := lowerCase(item.Metadata)["ownerid"]
			if p := item.Properties; owner != "" && p != nil && p.LastModified != nil && now.Sub(*p.LastModified) < processorOwns {
				return fmt.Errorf("%w: blob %s is owned by %q: stop it and wait for a minute, or mirror into another container", ErrProcessorActive, *item.Name, owner)
			}
		}
	}
	return nil
}

// folders returns the folders of a kind of blobs, with a slash at the end: Go's SDK keeps the case,
// all others write lower case. Some leave out the port that an emulator's address may have.
func (m *Mirror) folders(kind string) []string {
	exact := m.group.String() + "/" + kind + "/"
	list := []string{strings.ToLower(exact), exact}
	if host, _, err := net.SplitHostPort(m.group.Namespace); err == nil {
		portless := m.group
		portless.Namespace = host
		list = append(list, strings.ToLower(portless.String()+"/"+kind+"/"))
	}
	return slices.Compact(list)
}

// publish writes checkpoints, and deletes from due those that were written.
func (m *Mirror) publish(ctx context.Context, due map[string]publisher.Checkpoint) error {
	var mu sync.Mutex
	var wg sync.WaitGroup
	var failed error
	slots := make(chan struct{}, mirrorParallel)
	for partition, c := range maps.Clone(due) {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			err := m.copy(ctx, partition, c)
			mu.Lock()
			defer mu.Unlock()
			if err == nil || errors.Is(err, ErrLaterOwner) { // the later owner's next checkpoint may be set back
				delete(due, partition)
			}
			if err != nil && failed == nil {
				failed = fmt.Errorf("partition %s: %w", partition, err)
			}
		})
	}
	wg.Wait()
	return failed
}

// copy writes the blobs of a partition.
func (m *Mirror) copy(ctx context.Context, partition string, c publisher.Checkpoint) error {
	for _, folder := range m.folders("checkpoint") {
		if err := m.write(ctx, folder+partition, c); err != nil {
			return err
		}
	}
	return nil
}

// write writes a blob, unless it holds something that must stay.
func (m *Mirror) write(ctx context.Context, name string, c publisher.Checkpoint) error {
	const attempts = 3 // others write rarely
	client := m.client.NewBlockBlobClient(name)
	for range attempts {
		has, err := m.read(ctx, client, name)
		if err != nil {
			return err
		}
		if stays, err := has.stays(name, c); stays || err != nil {
			m.forget(name)
			return err
		}
		etag, err := put(ctx, client, has.etag, c)
		if err == nil {
			m.mu.Lock()
			m.known[name] = copied{etag: etag, sequence: c.Position.Sequence, certain: true, epoch: c.Epoch, ours: true}
			m.mu.Unlock()
			return nil
		}
		m.forget(name)
		if !bloberror.HasCode(err, changed...) {
			return safeError(err)
		}
	}
	return errChanged
}

func (m *Mirror) forget(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.known, name)
}

// read returns what a blob holds, as far as this process knows.
func (m *Mirror) read(ctx context.Context, client *blockblob.Client, name string) (copied, error) {
	m.mu.Lock()
	has, ok := m.known[name]
	m.mu.Unlock()
	if ok {
		return has, nil
	}
	got, err := client.GetProperties(ctx, nil)
	if bloberror.HasCode(err, bloberror.BlobNotFound) {
		return copied{}, nil
	}
	if err != nil {
		return copied{}, safeError(err)
	}
	has.etag = got.ETag
	metadata := lowerCase(got.Metadata)
	has.sequence, err = strconv.ParseInt(metadata[metaSequence], 10, 64)
	has.certain = err == nil
	has.epoch, err = strconv.ParseInt(metadata[metaEpoch], 10, 64)
	has.ours = err == nil
	return has, nil
}

// stays reports whether a blob stays as it is, because a later owner or another program has
// written it.
func (has copied) stays(name string, c publisher.Checkpoint) (bool, error) {
	switch {
	case has.etag == nil:
		return false, nil
	case has.ours && has.epoch <= c.Epoch:
		return false, nil
	case has.ours && (!c.Held || has.sequence == c.Position.Sequence):
		return true, nil
	case has.ours && has.sequence > c.Position.Sequence:
		return true, fmt.Errorf("blob %s holds %w, at event %d in epoch %d, and the partition is at %s in epoch %d: if the store was restored from a backup or exchanged, delete the blob", name, ErrLaterOwner, has.sequence, has.epoch, c.Position, c.Epoch)
	case has.ours:
		return false, nil
	case !has.certain:
		return true, fmt.Errorf("blob %s holds %w, without a sequence number: delete the blob, or mirror into another container", name, ErrOtherCheckpoint)
	case has.sequence > c.Position.Sequence:
		return true, fmt.Errorf("blob %s holds %w, at event %d, and the partition is at %s: go on from there with sluice move, or delete the blob", name, ErrOtherCheckpoint, has.sequence, c.Position)
	}
	return false, nil
}

// put writes a blob that has the version, or none.
func put(ctx context.Context, client *blockblob.Client, version *azcore.ETag, c publisher.Checkpoint) (*azcore.ETag, error) {
	sequence, offset, epoch := strconv.FormatInt(c.Position.Sequence, 10), cmp.Or(c.Position.Offset, beginning), strconv.FormatInt(c.Epoch, 10)
	metadata := map[string]*string{metaSequence: &sequence, metaOffset: &offset, metaEpoch: &epoch}
	if version != nil { // which creates no version of the blob where versions are kept
		answer, err := client.SetMetadata(ctx, metadata, &blob.SetMetadataOptions{
			AccessConditions: &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfMatch: version}},
		})
		return answer.ETag, err
	}
	absent := azcore.ETagAny
	answer, err := client.Upload(ctx, streaming.NopCloser(bytes.NewReader(nil)), &blockblob.UploadOptions{
		Metadata:         metadata,
		AccessConditions: &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfNoneMatch: &absent}},
	})
	return answer.ETag, err
}

// lowerCase returns metadata with names in lower case, as they were written: HTTP changes their
// case.
func lowerCase(metadata map[string]*string) map[string]string {
	list := make(map[string]string, len(metadata))
	for name, value := range metadata {
		if value != nil {
			list[strings.ToLower(name)] = *value
		}
	}
	return list
}
