package check

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"

	"github.com/sluice-go/sluice/driver"
)

// patientHub repeats what the hub refused because it was busy, as Sluice does.
type patientHub struct{ rawHub }

// Bounds of the repetition: a hub that stays busy for longer leaves the check undecided.
const (
	busyTries = 6
	busyWait  = time.Second
)

func patiently(ctx context.Context, request func() error) error {
	for n := 1; ; n++ {
		err := request()
		if err == nil || n == busyTries || !throttled(err) || pause(ctx, busyWait) != nil {
			return err
		}
	}
}

// driverTries is how often a request of Sluice's driver is tried.
const driverTries = 4

// answers are the errors of the driver after which the engine does not try again.
var answers = []error{driver.ErrStolen, driver.ErrPastEnd, driver.ErrRetention, driver.ErrUndecodable, driver.ErrRecreated, driver.ErrTruncated, driver.ErrRefused}

// again repeats what failed for another reason than an answer of the hub, as the engine does: links
// end now and then.
func again(ctx context.Context, request func() error) error {
	for n := 1; ; n++ {
		err := request()
		known := slices.ContainsFunc(answers, func(answer error) bool { return errors.Is(err, answer) })
		if err == nil || known || n == driverTries || pause(ctx, busyWait/2) != nil {
			return err
		}
	}
}

func (h patientHub) describe(ctx context.Context) (p hubProperties, err error) {
	err = patiently(ctx, func() error { p, err = h.rawHub.describe(ctx); return err })
	return p, err
}

func (h patientHub) runtime(ctx context.Context, partition string) (info runtimeInfo, err error) {
	err = patiently(ctx, func() error { info, err = h.rawHub.runtime(ctx, partition); return err })
	return info, err
}

// read begins again where it was refused: nothing is lost, since it reads from a position.
func (h patientHub) read(ctx context.Context, partition string, from azeventhubs.StartPosition, want int, idle time.Duration) (list []event, err error) {
	err = patiently(ctx, func() error { list, err = h.rawHub.read(ctx, partition, from, want, idle); return err })
	return list, err
}

// send repeats a batch that was refused, which the hub has not stored.
func (h patientHub) send(ctx context.Context, partition, key string, bodies [][]byte) error {
	return patiently(ctx, func() error { return h.rawHub.send(ctx, partition, key, bodies) })
}

func (h patientHub) maxBatch(ctx context.Context) (n uint64, err error) {
	err = patiently(ctx, func() error { n, err = h.rawHub.maxBatch(ctx); return err })
	return n, err
}
