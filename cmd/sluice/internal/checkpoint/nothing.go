package checkpoint

import (
	"context"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
)

// NoLeases, NoCheckpoints and NoDeadLetters are stores in which nothing is stored, for a dry run
// before there is a database. Only what a dry run asks is implemented.
type (
	NoLeases      struct{ driver.LeaseStore }
	NoCheckpoints struct{ Store }
	NoDeadLetters struct{ driver.DeadLetterStore }
)

// List implements [driver.LeaseStore].
func (NoLeases) List(context.Context, sluice.Group) ([]driver.LeaseInfo, error) { return nil, nil }

// Read implements [Store].
func (NoCheckpoints) Read(context.Context, sluice.Group) ([]sluice.Checkpoint, error) {
	return nil, nil
}

// List implements [driver.DeadLetterStore].
func (NoDeadLetters) List(context.Context, sluice.Group, sluice.DeadLetterFilter) ([]sluice.DeadLetter, error) {
	return nil, nil
}
