package main

import (
	"context"
	"errors"

	"github.com/sluice-go/sluice/cmd/sluice/internal/usage"
	"github.com/spf13/cobra"
)

func (a *app) audit() *cobra.Command {
	return a.group("audit", "Find out whether anything was lost", a.auditHub(), a.auditTelemetry())
}

// Exit codes of audits.
const (
	exitLoss      = 1
	exitUndecided = 2
)

// verdictError ends a command whose work is done with an exit code that says
// what it found.
type verdictError struct {
	code int
	text string
}

func (e *verdictError) Error() string { return e.text }

// undecided makes of whatever kept an audit from its verdict that there is
// none: exit code 1 says that something is lost.
func undecided(ctx context.Context, err error) error {
	var found *verdictError
	var mistake *usage.Error
	switch {
	case err == nil, errors.As(err, &found), errors.As(err, &mistake):
		return err
	case ctx.Err() != nil:
		return &verdictError{exitUndecided, "interrupted before it could tell"}
	}
	return &verdictError{exitUndecided, err.Error()}
}
