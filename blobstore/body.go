package blobstore

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/property"
)

// The blob of a dead letter's body holds one line of JSON with the properties, if there are any,
// and then the body as it is.

// maxBody bounds what is read as a body with its properties.
const maxBody = 128 << 20

func (s *Store) bodyName(r *index, body string) (string, error) {
	return s.join(r.group, bodiesFolder, escape(r.partition), body)
}

// storeBody stores a body under a name that was never used, and records the name in the entry. Only
// the index makes it part of a dead letter.
func (s *Store) storeBody(ctx context.Context, r *index, d *driver.DeadLetter, e *entry) error {
	if !d.HasBody {
		return nil
	}
	content, err := property.EncodeEvent(&d.Event)
	if err != nil {
		return err
	}
	if content != nil {
		content = append(content, '\n')
	}
	head := int64(len(content))
	body := fmt.Sprintf("%d-%s", e.Sequence, strings.ToLower(rand.Text()))
	name, err := s.bodyName(r, body)
	if err != nil {
		return err
	}
	content = append(content, d.Event.Body...)
	e.Body, e.Head = body, head // also if it fails: it may be there all the same
	_, err = s.client.NewBlockBlobClient(name).Upload(ctx, streaming.NopCloser(bytes.NewReader(content)), &blockblob.UploadOptions{})
	return safeError(err)
}

// readBody adds body and properties to a dead letter.
func (s *Store) readBody(ctx context.Context, r *index, e *entry, d *driver.DeadLetter) error {
	name, err := s.bodyName(r, e.Body)
	if err != nil {
		return err
	}
	content, _, err := s.download(ctx, name, maxBody)
	if err != nil {
		return safeError(err)
	}
	if e.Head < 0 || int64(len(content)) < e.Head {
		return fmt.Errorf("blob %s: %d bytes, and the properties should have %d", name, len(content), e.Head)
	}
	d.Event.Body = content[e.Head:]
	if err := property.DecodeEvent(content[:e.Head], &d.Event); err != nil {
		return fmt.Errorf("blob %s: %w", name, err)
	}
	return nil
}

// cleanUpCtx bounds what is cleaned up after a call, also after one that was cancelled. A server
// that has not answered the call in time gets a second.
func cleanUpCtx(ctx context.Context) (context.Context, context.CancelFunc) {
	within := 5 * time.Second
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		within = time.Second
	}
	return context.WithTimeout(context.WithoutCancel(ctx), within)
}

// dropBodies deletes bodies that no index names any more. What it fails to delete stays and takes
// up storage, without other effects.
func (s *Store) dropBodies(ctx context.Context, r *index, names []string) {
	if len(names) == 0 {
		return
	}
	ctx, cancel := cleanUpCtx(ctx)
	defer cancel()
	_ = forEach(ctx, len(names), func(ctx context.Context, i int) error {
		name, err := s.bodyName(r, names[i])
		if err == nil {
			_, _ = s.client.NewBlobClient(name).Delete(ctx, nil)
		}
		return nil
	})
}
