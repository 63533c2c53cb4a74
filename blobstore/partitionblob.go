package blobstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"

	"github.com/sluice-go/sluice/driver"
)

// partitionBlob is the state of a partition's blob as it was read.
type partitionBlob struct {
	record
	name   string
	exists bool
	etag   azcore.ETag
	leased bool      // there is a lease on it, of any owner
	now    time.Time // by the server's clock, to the second
}

// read reads a partition's blob; one that does not exist is read as empty.
func (s *Store) read(ctx context.Context, name string) (partitionBlob, error) {
	c := partitionBlob{name: name}
	got, err := s.client.NewBlobClient(name).GetProperties(ctx, nil)
	if bloberror.HasCode(err, bloberror.BlobNotFound) {
		c.now = dateOf(err)
		return c, nil
	}
	if err != nil {
		return c, safeError(err)
	}
	if got.ETag == nil || got.Date == nil || got.LeaseState == nil {
		return c, errors.New("answer of Azure Storage without the blob's version, lease or time")
	}
	c.exists, c.etag, c.now = true, *got.ETag, got.Date.UTC()
	c.leased = held(*got.LeaseState)
	if c.record, err = decode(got.Metadata); err != nil {
		return c, fmt.Errorf("blob %s: %w", name, err)
	}
	return c, nil
}

// dateOf returns the server's time from an error response.
func dateOf(err error) time.Time {
	if r, found := errors.AsType[*azcore.ResponseError](err); found && r.RawResponse != nil {
		if t, err := http.ParseTime(r.RawResponse.Header.Get("Date")); err == nil {
			return t.UTC()
		}
	}
	return time.Now().UTC()
}

// held reports whether a lease in this state keeps others away.
func held(state lease.StateType) bool {
	return state == lease.StateTypeLeased || state == lease.StateTypeBreaking
}

// write stores the record if the blob still has the version that was read, under the lease with
// this ID; empty if there is none.
func (s *Store) write(ctx context.Context, c partitionBlob, id string, r record) error {
	if !c.exists {
		return s.create(ctx, c.name, r)
	}
	_, err := s.client.NewBlobClient(c.name).SetMetadata(ctx, r.encode(), &blob.SetMetadataOptions{AccessConditions: &blob.AccessConditions{
		LeaseAccessConditions:    underLease(id),
		ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfMatch: &c.etag},
	}})
	return safeError(err)
}

// create creates a blob that does not exist yet.
func (s *Store) create(ctx context.Context, name string, r record) error {
	anyVersion := azcore.ETagAny
	_, err := s.client.NewBlockBlobClient(name).Upload(ctx, streaming.NopCloser(bytes.NewReader(nil)), &blockblob.UploadOptions{
		Metadata:         r.encode(),
		AccessConditions: &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfNoneMatch: &anyVersion}},
	})
	return safeError(err)
}

func underLease(id string) *blob.LeaseAccessConditions {
	if id == "" {
		return nil
	}
	return &blob.LeaseAccessConditions{LeaseID: &id}
}

// maxTries bounds how often an operation is repeated because the blob was changed meanwhile. After
// so many times, something other than Sluice keeps changing it.
const maxTries = 50

// edit reads a partition's blob and calls try, which decides and writes. It repeats both while try
// returns errChanged, because the blob was changed meanwhile. After errLease it repeats them once
// if the version is another one, because then a change may be why the lease was refused.
func (s *Store) edit(ctx context.Context, group driver.Group, partition string, try func(c partitionBlob) error) error {
	name, err := s.name(group, partition)
	if err != nil {
		return err
	}
	done, err := s.locks.take(ctx, name)
	if err != nil {
		return err
	}
	defer done()
	var refused azcore.ETag // the version in which the lease was refused
	for range maxTries {
		c, err := s.read(ctx, name)
		if err != nil {
			return err
		}
		err = try(c)
		switch {
		case errors.Is(err, errLease):
			if c.etag == refused {
				return err
			}
			refused = c.etag
		case !errors.Is(err, errChanged):
			return err
		}
	}
	return fmt.Errorf("blob %s is changed constantly: make sure that nothing but Sluice writes to it", name)
}
