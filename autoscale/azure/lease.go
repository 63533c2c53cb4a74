package azure

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"

	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/autoscale/internal/azerror"
)

// TakeLease implements [autoscale.Store], in the row ~lease. Both times that decide about
// expiry, that of the row and the present one, are the server's.
func (s *Store) TakeLease(ctx context.Context, resource string, l autoscale.Lease) (*autoscale.Lease, error) {
	var held *autoscale.Lease
	err := unlessOutpaced(ctx, func() (err error) {
		held, err = s.tryTakeLease(ctx, resource, l)
		return err
	})
	if err != nil {
		return nil, s.fail("take lease of "+resource, err)
	}
	return held, nil
}

func (s *Store) tryTakeLease(ctx context.Context, resource string, l autoscale.Lease) (*autoscale.Lease, error) {
	var response *http.Response
	old, etag, err := s.read(policy.WithCaptureResponse(ctx, &response), resource, leaseRow)
	if err != nil {
		return nil, err
	}
	if old != nil {
		held := &autoscale.Lease{}
		if err := get(old, "Lease", held); err != nil {
			return nil, err
		}
		if held.Owner != l.Owner && serverTime(response).Sub(time.Time(old.Timestamp)) < held.Duration {
			return held, nil
		}
	}
	e := row(resource, leaseRow)
	if err := put(e, "Lease", l); err != nil {
		return nil, err
	}
	text, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	if old == nil {
		_, err = s.table.AddEntity(ctx, text, nil)
	} else {
		_, err = s.table.UpdateEntity(ctx, text, &aztables.UpdateEntityOptions{IfMatch: &etag, UpdateMode: aztables.UpdateModeReplace})
	}
	return nil, err
}

// serverTime is the time of a response, in whole seconds.
func serverTime(r *http.Response) time.Time {
	if r != nil {
		if at, err := http.ParseTime(r.Header.Get("Date")); err == nil {
			return at
		}
	}
	return time.Now()
}

// ReleaseLease implements [autoscale.Store].
func (s *Store) ReleaseLease(ctx context.Context, resource, owner string) error {
	err := s.tryReleaseLease(ctx, resource, owner)
	if err != nil && !outpaced(err) { // if another process was faster, the lease is another's
		return s.fail("release lease of "+resource, err)
	}
	return nil
}

func (s *Store) tryReleaseLease(ctx context.Context, resource, owner string) error {
	old, etag, err := s.read(ctx, resource, leaseRow)
	if err != nil || old == nil {
		return err
	}
	held := &autoscale.Lease{}
	if err := get(old, "Lease", held); err != nil || held.Owner != owner {
		return err
	}
	_, err = s.table.DeleteEntity(ctx, key(resource), leaseRow, &aztables.DeleteEntityOptions{IfMatch: &etag})
	return err
}

// maxOutpaced is how often a write is tried. Azure also answers with these statuses if the
// table itself is missing or being deleted, so that no try would succeed.
const maxOutpaced = 10

// unlessOutpaced calls write again while another process has changed a row since it was
// read: what that process has written decides.
func unlessOutpaced(ctx context.Context, write func() error) error {
	for n := 1; ; n++ {
		if err := write(); n == maxOutpaced || !outpaced(err) || ctx.Err() != nil {
			return err
		}
	}
}

// outpaced reports whether another process has changed a row since it was read.
func outpaced(err error) bool {
	return azerror.HasStatus(err, http.StatusConflict) || azerror.HasStatus(err, http.StatusPreconditionFailed) || azerror.HasStatus(err, http.StatusNotFound)
}
