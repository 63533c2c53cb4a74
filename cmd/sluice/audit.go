package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/sluice-go/sluice/cmd/sluice/internal/usage"
)

func (a *app) audit() *cobra.Command {
	return a.group("audit", "Check whether events were lost", a.auditHub(), a.auditTelemetry())
}

// Exit codes of audits.
const (
	exitLoss      = 1
	exitUndecided = 3 // 2 is wrong usage
)

// verdictError is the result of an audit that is not good. Its exit code says what was found.
type verdictError struct {
	code int
	text string
}

func (e *verdictError) Error() string { return e.text }

// undecided gives an error that prevented a verdict the exit code for "undecided", since exit code
// 1 means that events are lost.
func undecided(ctx context.Context, err error) error {
	var found *verdictError
	var mistake *usage.Error
	switch {
	case err == nil, errors.As(err, &found), errors.As(err, &mistake):
		return err
	case ctx.Err() != nil:
		return &verdictError{exitUndecided, "interrupted before it could decide"}
	}
	return &verdictError{exitUndecided, err.Error()}
}
