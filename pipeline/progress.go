package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/blobstore"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/config/strictyaml"
	"github.com/sluice-go/sluice/kafka"
)

// Limits of progress_blobs.every.
const (
	minMirror = time.Second
	maxMirror = time.Hour
)

// progressBlobs is the container into which the checkpoints of a hub are mirrored, as the Azure
// SDKs' processors keep theirs.
type progressBlobs struct {
	blobContainer
	every time.Duration
}

// readProgressBlobs reads source.eventhub.progress_blobs.
func (r *reader) readProgressBlobs(n strictyaml.Node, h *hub) {
	r.given.progressBlobs, r.places.progress = &n, n.Place()
	b := &progressBlobs{}
	// No prefix: the processors of the Azure SDKs read none.
	if b.read(n, strictyaml.Keys{"every": func(n strictyaml.Node) { n.DurationIn(&b.every, minMirror, maxMirror) }}) {
		h.progress = b
	}
}

// mirror connects to the container.
func (b *progressBlobs) mirror(ctx context.Context, g sluice.Group, next driver.Observer) (*blobstore.Mirror, error) {
	cfg, err := b.config()
	if err != nil {
		return nil, err
	}
	client, err := blobstore.Connect(b.where, cfg)
	if err != nil {
		return nil, err
	}
	return blobstore.NewMirror(ctx, client, g, &blobstore.MirrorConfig{Every: b.every, Observer: next})
}

// SDKGroup returns the names under which the processors of the Azure SDKs keep their checkpoints of
// the pipeline's hub and consumer group. Of another log it is the group itself.
func (p *Pipeline) SDKGroup(group sluice.Group) sluice.Group {
	if h, is := p.source.(*hub); is {
		return h.sdkGroup(p.Group.Name)
	}
	return group
}

// publishProgress returns an observer that also publishes progress where the file says: in a
// consumer group of Kafka, or in blobs.
func (parts *Parts) publishProgress(ctx context.Context, observer driver.Observer) (driver.Observer, error) {
	if parts.pipeline.places.progress == (strictyaml.Place{}) {
		return observer, nil
	}
	var published interface {
		driver.Observer
		Close(ctx context.Context) error
	}
	switch log := parts.pipeline.source.(type) {
	case *kafkaTopic:
		p, err := kafka.NewProgress(ctx, parts.log.(*topicSource).Source, log.progressGroup, &kafka.ProgressConfig{Observer: observer})
		if err != nil {
			return nil, fmt.Errorf("progress_%w", err) // "progress_group NAME: …"
		}
		published = p
	case *hub:
		m, err := log.progress.mirror(ctx, log.sdkGroup(parts.Group.Name), observer)
		if err != nil {
			return nil, fmt.Errorf("progress_blobs: %w", err)
		}
		published = m
	}
	parts.onClose(published.Close)
	if observer == nil {
		return published, nil
	}
	return driver.Observers(observer, published), nil
}

// checkProgress checks that progress can be published where the file says: the container of
// progress_blobs can be read, if it exists, and no other program reads in the consumer group there.
// It changes nothing.
func (p *Pipeline) checkProgress(ctx context.Context) error {
	switch log := p.source.(type) {
	case *hub:
		exists, err := log.progress.check(ctx)
		if err == nil && exists { // the first start creates a missing one
			var m *blobstore.Mirror
			if m, err = log.progress.mirror(ctx, log.sdkGroup(p.Group.Name), nil); err == nil {
				err = m.Close(ctx) // which has nothing to write
			}
		}
		return p.problem(p.places.progress, err)
	case *kafkaTopic:
		source, err := log.open("")
		if err == nil {
			if err = source.(*topicSource).CheckUnread(ctx, log.progressGroup); err != nil {
				err = fmt.Errorf("progress_%w", err) // "progress_group NAME: …"
			}
			err = errors.Join(err, source.Close(ctx))
		}
		return p.problem(p.places.progress, err)
	}
	return nil
}
