package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-go/sluice/cmd/sluice/internal/doctor"
	"github.com/sluice-go/sluice/cmd/sluice/internal/results"
	"github.com/sluice-go/sluice/cmd/sluice/internal/usage"
	"github.com/sluice-go/sluice/internal/term"
)

func (a *app) doctor() *cobra.Command {
	var config, stage string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor {PIPELINE.yaml|--config PIPELINE.yaml}",
		Short: "Examine a pipeline in seconds: its parts, rights, clocks, certificates and partitions",
		Long: `Examine a pipeline, running or not, in 15 seconds at most: whether the file is valid and its
variables are set, whether each part answers, what the credentials allow, how far the clocks
differ, when certificates end, which version Sluice's tables have, who owns which partition,
whether retention is near a checkpoint, lag, dead letters, and other programs that read
in the same consumer group.

Nothing is changed and no event is read in the pipeline's consumer group. Two requests have
a trace on the other side: an HTTP endpoint gets a POST without events, and a HEAD.

Each line is ok, warning or failed, with the next step. docs/doctor.md lists the checks.

Exit codes: 0 if nothing failed, 1 if something did, 2 if the flags or arguments were wrong.`,
		Example: "  sluice doctor flights.yaml\n  sluice doctor stages.yaml --stage clean --json",
		Args:    cobra.MaximumNArgs(1),
		RunE: a.runE(func(ctx context.Context, args []string) error {
			path, err := fileOf(config, args)
			if err != nil {
				return err
			}
			ctx, stop := term.UntilInterrupted(ctx)
			defer stop()
			began := time.Now()
			list, err := examine(ctx, path, stage)
			if err != nil {
				return err
			}
			if asJSON {
				err = results.JSON(a.out, examination{path, version(), time.Since(began).Seconds(), doctor.Worst(list), list})
			} else {
				err = writeFindings(a.out, list)
			}
			if n := doctor.Count(list, doctor.Failed); err == nil && n > 0 {
				err = fmt.Errorf("%s: failed checks: %d", path, n)
			}
			return err
		}),
	}
	configFlag(cmd.Flags(), &config)
	stageFlag(cmd.Flags(), &stage)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// examination is the result as --json prints it.
type examination struct {
	File     string           `json:"file"`
	Sluice   string           `json:"sluice"`
	Seconds  float64          `json:"seconds"`
	Result   doctor.State     `json:"result"` // the worst of the findings
	Findings []doctor.Finding `json:"findings"`
}

// examine examines the stages of a file: the one of that name, or all. The error is one of usage.
func examine(ctx context.Context, path, stage string) ([]doctor.Finding, error) {
	stages, err := loadStages(path, stage)
	if mistake, ok := errors.AsType[*usage.Error](err); ok {
		return nil, mistake
	}
	if err != nil {
		return doctor.OfFile(err), nil
	}
	valid := doctor.Finding{Check: "file", State: doctor.OK, Found: "valid, and all variables are set"}
	return append([]doctor.Finding{valid}, doctor.Examiner{}.Examine(ctx, path, stages)...), nil
}

func writeFindings(w io.Writer, list []doctor.Finding) error {
	stage := ""
	for _, f := range list {
		if f.Stage != stage {
			stage = f.Stage
			if _, err := fmt.Fprintf(w, "stage %s\n", stage); err != nil {
				return err
			}
		}
		text := fmt.Sprintf("%-7s  %s: %s\n", f.State, f.Check, f.Found)
		if f.Next != "" {
			text += fmt.Sprintf("%-7s  → %s\n", "", f.Next)
		}
		if _, err := io.WriteString(w, text); err != nil {
			return err
		}
	}
	return nil
}
