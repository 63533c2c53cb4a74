package main

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/sluice-go/sluice/cmd/sluice/internal/usage"
	"github.com/sluice-go/sluice/pipeline"
)

// stageFlag names one of a file's stages.
func stageFlag(f *pflag.FlagSet, to *string) {
	f.StringVar(to, "stage", "", "the `stage` of the file, where it has several")
}

// loadStage reads a pipeline file with one pipeline, or one of several.
func loadStage(path, stage string) (*pipeline.Pipeline, error) {
	f, err := pipeline.LoadFile(path)
	if err != nil {
		return nil, err
	}
	p, err := f.Stage(stage)
	if err != nil {
		return nil, usage.Errorf("--stage: %v", err)
	}
	return p, nil
}

// loadKeeping is loadStage of one that keeps checkpoints.
func loadStageWithCheckpoints(path, stage string) (*pipeline.Pipeline, error) {
	p, err := loadStage(path, stage)
	if err == nil && p.Rollup {
		err = fmt.Errorf("%s: stage %s is in memory: it has neither checkpoints nor dead letters, and is read anew at every start", path, p.Name)
	}
	return p, err
}

// chosen are the stages of a file that a command is for: one, or all.
func loadStages(path, stage string) ([]*pipeline.Pipeline, error) {
	if stage != "" {
		p, err := loadStage(path, stage)
		return []*pipeline.Pipeline{p}, err
	}
	f, err := pipeline.LoadFile(path)
	if err != nil {
		return nil, err
	}
	return f.Stages, nil
}

// prefix says which stage it is, if there are several.
func prefix(p *pipeline.Pipeline, among []*pipeline.Pipeline) string {
	if len(among) == 1 {
		return ""
	}
	return "stage " + p.Name + ": "
}
