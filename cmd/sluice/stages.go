package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/spf13/pflag"

	"github.com/sluice-go/sluice/cmd/sluice/internal/usage"
	"github.com/sluice-go/sluice/internal/config/strictyaml"
	"github.com/sluice-go/sluice/pipeline"
)

// stageFlag adds --stage, which chooses a stage of a file.
func stageFlag(f *pflag.FlagSet, to *string) {
	f.StringVar(to, "stage", "", "the `stage`, if the file has several")
}

// loadFile reads a file, and asks for the topics of its patterns.
func loadFile(ctx context.Context, path string) (*pipeline.File, error) {
	f, err := pipeline.LoadFile(path)
	if err != nil {
		return nil, notThere(err, "check the path, or write a new file: sluice init "+path)
	}
	return f, f.Resolve(ctx)
}

// loadStage reads one pipeline of a file: the only one, or the stage of that name.
func loadStage(ctx context.Context, path, stage string) (*pipeline.Pipeline, error) {
	f, err := loadFile(ctx, path)
	if err != nil {
		return nil, err
	}
	p, err := f.Stage(stage)
	if err != nil {
		return nil, usage.Errorf("--stage: %v", err)
	}
	return p, nil
}

// loadStageWithCheckpoints is loadStage for commands that need checkpoints or dead letters.
func loadStageWithCheckpoints(ctx context.Context, path, stage string) (*pipeline.Pipeline, error) {
	p, err := loadStage(ctx, path, stage)
	if err == nil && p.Rollup {
		err = fmt.Errorf("%s: stage %s is in memory: it has no checkpoints and no dead letters, and is read again at every start", path, p.Name)
	}
	return p, err
}

// loadStages reads the stages of a file: the one of that name, or all.
func loadStages(ctx context.Context, path, stage string) ([]*pipeline.Pipeline, error) {
	if stage != "" {
		p, err := loadStage(ctx, path, stage)
		return []*pipeline.Pipeline{p}, err
	}
	f, err := loadFile(ctx, path)
	if err != nil {
		return nil, err
	}
	return f.Stages, nil
}

// notThere adds what to do to the error about a file that does not exist.
func notThere(err error, next string) error {
	if _, ofContent := errors.AsType[strictyaml.Problems](err); err == nil || ofContent || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return fmt.Errorf("%w: %s", err, next)
}
