// Package demo runs Sluice with servers on one machine. The first demo is package
// [github.com/sluice-go/sluice/cmd/sluice/internal/flights]; the others are here:
//
//   - [OpenKafka]: the first demo with a topic of Kafka in place of the hub.
//   - [Cosmos]: a hub, a producer of documents, and a pipeline into a Cosmos DB account, at a rate
//     in RU per second.
//   - [Stages]: three pipelines that feed each other through hubs.
//   - [Autoscale]: a load that rises and falls, and a number of workers that follows.
package demo

import (
	"context"
	"errors"
	"log/slog"

	"github.com/sluice-go/sluice/audit"
	"github.com/sluice-go/sluice/cmd/sluice/internal/flights"
	"github.com/sluice-go/sluice/pipeline"
)

// scenario is one whose consumer is a pipeline.
type scenario struct {
	*flights.Scenario
	pipeline *pipeline.Pipeline
	parts    *pipeline.Parts
}

func startScenario(dir string, log *slog.Logger, name string, more ...string) (*scenario, error) {
	s, err := flights.StartScenario(dir, log, name, more...)
	if err != nil {
		return nil, err
	}
	return &scenario{Scenario: s}, nil
}

// open opens the pipeline.
func (s *scenario) open(ctx context.Context, p *pipeline.Pipeline) error {
	parts, err := p.Open(ctx)
	if err == nil {
		s.read(p, parts)
	}
	return err
}

// read makes an opened pipeline the one that reads the log.
func (s *scenario) read(p *pipeline.Pipeline, parts *pipeline.Parts) {
	s.pipeline, s.parts = p, parts
	s.Source, s.Checkpoints, s.DeadLetters = parts.Source, parts.Checkpoints, parts.DeadLetters
}

// Close closes the pipeline and the log.
func (s *scenario) Close(ctx context.Context) error {
	var err error
	if s.parts != nil {
		err = s.parts.Close(ctx)
	}
	return errors.Join(err, s.CloseLog())
}

// Pipeline is the one that reads the hub.
func (s *scenario) Pipeline() *pipeline.Pipeline { return s.pipeline }

// Parts are the pipeline's.
func (s *scenario) Parts() *pipeline.Parts { return s.parts }

// Run is [flights.Scenario.Run] with the pipeline's consumer. stopped returns the halted
// partitions.
func (s *scenario) Run(ctx context.Context, events int64, once bool, opts *pipeline.Options, stopped func() map[string]error) error {
	opts.Owner = flights.Owner
	consumer, err := s.parts.Consumer(ctx, opts)
	if err != nil {
		return err
	}
	return s.Scenario.Run(ctx, events, once, consumer, func(ctx context.Context) error {
		return flights.AwaitEnd(ctx, s.Source, s.Checkpoints, stopped)
	})
}

// hubAudit is [flights.Scenario.HubAudit] by a consumer group of the audit's own.
func (s *scenario) hubAudit(ctx context.Context, consumerGroup string, progress func(events int64), read func(context.Context, flights.Found) error) (*audit.Report, error) {
	source, err := s.pipeline.SourceAs(consumerGroup)
	if err != nil {
		return nil, err
	}
	return s.Scenario.HubAudit(ctx, source, progress, read)
}
