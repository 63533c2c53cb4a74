package config

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/autoscale/source/lag"
	"github.com/sluice-go/sluice/blobstore"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/azurecheckpoints"
	"github.com/sluice-go/sluice/internal/config/strictyaml"
	"github.com/sluice-go/sluice/kafka"
	"github.com/sluice-go/sluice/pipeline"
)

// readLag reads the lag of a pipeline, or of other consumers of a log.
func readLag(n strictyaml.Node) opener[autoscale.Source] {
	var path string
	var input *pipeline.Input
	var of foreign
	ok := n.Object(strictyaml.Keys{
		"pipeline":    func(n strictyaml.Node) { n.Text(&path) },
		"source":      func(n strictyaml.Node) { input = pipeline.ReadInput(n) },
		"checkpoints": func(n strictyaml.Node) { of = readForeign(n) },
	})
	switch {
	case !ok:
		return nil
	case (path != "") == (input != nil) || (input != nil) != (of.open != nil):
		n.Fail("needs pipeline, or source and checkpoints")
		return nil
	case path != "":
		return pipelineLag(path)
	case of.system != input.System():
		of.node.Fail("goes with source.%s only", map[pipeline.System]string{pipeline.EventHubs: "eventhub", pipeline.Kafka: "kafka"}[of.system])
		return nil
	}
	return func(ctx context.Context, _ *Options) (autoscale.Source, closer, error) {
		source, err := input.Open()
		if err != nil {
			return nil, nil, err
		}
		checkpoints, err := of.open(source)
		if err != nil {
			return nil, nil, errors.Join(err, source.Close(ctx))
		}
		return lag.New(source, checkpoints, source.Group(), &lag.Config{Start: input.Start()}), source.Close, nil
	}
}

func pipelineLag(path string) opener[autoscale.Source] {
	return func(ctx context.Context, _ *Options) (autoscale.Source, closer, error) {
		p, err := pipeline.Load(path)
		if err != nil {
			return nil, nil, err
		}
		if p.Rollup {
			return nil, nil, fmt.Errorf("pipeline %s has no checkpoints, because it reads into memory: its lag cannot be measured", path)
		}
		parts, err := p.Open(ctx)
		if err != nil {
			return nil, nil, err
		}
		return lag.New(parts.Source, parts.Checkpoints, parts.Group, &lag.Config{Start: p.Start()}), parts.Close, nil
	}
}

// foreign is where consumers other than Sluice's keep their checkpoints.
type foreign struct {
	node   strictyaml.Node
	system pipeline.System // of the log for which it can be
	open   func(pipeline.Source) (lag.Checkpoints, error)
}

func readForeign(n strictyaml.Node) foreign {
	return exactlyOne(n, "store", map[string]func(strictyaml.Node) foreign{
		"azure_blob":  readAzureBlob,
		"kafka_group": readKafkaGroup,
	})
}

func readAzureBlob(n strictyaml.Node) foreign {
	var where, prefix, credentialName string
	var cfg blobstore.Config
	ok := n.Object(strictyaml.Keys{
		"container":  readSecret("CHECKPOINTS_URL", &where),
		"connection": readSecret("STORAGE_CONNECTION_STRING", &cfg.ConnectionString),
		"credential": readCredential(&credentialName),
		"prefix":     func(n strictyaml.Node) { n.Text(&prefix) },
	}, "container")
	if !ok {
		return foreign{}
	}
	if cfg.ConnectionString != "" && credentialName != "" {
		n.Fail("needs one of connection and credential: default")
		return foreign{}
	}
	return foreign{n, pipeline.EventHubs, func(pipeline.Source) (lag.Checkpoints, error) {
		var err error
		if cfg.Credential, err = credential(credentialName); err != nil {
			return nil, err
		}
		client, err := blobstore.Connect(where, &cfg)
		if err != nil {
			return nil, err
		}
		return &azureBlobs{client, prefix}, nil
	}}
}

// azureBlobs are the checkpoints of the Azure SDKs' event processors.
type azureBlobs struct {
	client *container.Client
	prefix string
}

// Read implements [lag.Checkpoints].
func (b *azureBlobs) Read(ctx context.Context, group sluice.Group) ([]sluice.Checkpoint, error) {
	found, err := azurecheckpoints.Read(ctx, b.client, b.prefix, group)
	if err != nil {
		return nil, blobstore.SafeError(err)
	}
	if len(found.Checkpoints) == 0 {
		hint := ""
		if len(found.Others) > 0 {
			hint = "; it has those of " + strings.Join(found.Others[:min(len(found.Others), 5)], ", ")
		}
		return nil, fmt.Errorf("the container has no checkpoints of %v%s: check the hub, the consumer group and the prefix; a consumer that has never run has none", group, hint)
	}
	list := make([]sluice.Checkpoint, len(found.Checkpoints))
	for i, c := range found.Checkpoints {
		if c.Sequence < 0 && !c.Origin {
			return nil, fmt.Errorf("blob %s has an offset without a sequence number: the lag cannot be computed from it", c.Blob)
		}
		list[i] = sluice.Checkpoint{Group: group, Partition: c.Partition, Position: driver.Position{Sequence: c.Sequence, Offset: c.Offset}}
	}
	return list, nil
}

func readKafkaGroup(n strictyaml.Node) foreign {
	var name string
	if !n.Text(&name) {
		return foreign{}
	}
	return foreign{n, pipeline.Kafka, func(source pipeline.Source) (lag.Checkpoints, error) {
		topic, ok := source.(consumerGroups)
		if !ok {
			return nil, fmt.Errorf("consumer group %s: the source is not a topic of Kafka", name)
		}
		return &kafkaOffsets{topic, name}, nil
	}}
}

// consumerGroups is the part of a [kafka.Source] that is needed.
type consumerGroups interface {
	ConsumerGroup(ctx context.Context, name string) (kafka.ConsumerGroup, error)
}

// kafkaOffsets are the committed offsets of a consumer group of Kafka.
type kafkaOffsets struct {
	topic consumerGroups
	name  string
}

// Read implements [lag.Checkpoints].
func (o *kafkaOffsets) Read(ctx context.Context, group sluice.Group) ([]sluice.Checkpoint, error) {
	found, err := o.topic.ConsumerGroup(ctx, o.name)
	if err != nil {
		return nil, err
	}
	if len(found.Positions) == 0 {
		return nil, fmt.Errorf("consumer group %s has no offsets of topic %s: check both names; a group that has never committed has none", o.name, group.Topic)
	}
	var list []sluice.Checkpoint
	for partition, at := range found.Positions {
		list = append(list, sluice.Checkpoint{Group: group, Partition: partition, Position: at})
	}
	return list, nil
}
