package main

import "github.com/spf13/cobra"

func (a *app) audit() *cobra.Command {
	return a.family("audit", "Find out whether anything was lost", a.auditHub(), a.auditTelemetry())
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
