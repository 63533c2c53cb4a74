package verify

import (
	"context"
	"slices"
	"time"
)

// PipelineRights tests the rights that a pipeline needs of a system, and changes nothing. Those that
// only the checks of this package need are left out.
func PipelineRights(ctx context.Context, s System) []Right {
	if db, ok := s.(*databaseSystem); ok && db.used != nil {
		return db.used(ctx)
	}
	rights := s.Rights(ctx)
	if b, ok := s.(*blobSystem); ok && b.mirror { // it deletes nothing
		rights = slices.DeleteFunc(rights, func(r Right) bool { return r.Name == "delete blobs" })
	}
	return rights
}

// ClockDifference compares the clock of a system with now: it is positive if the system's is ahead.
// It is known after [PipelineRights]; ok is false if the system shows no clock of its own.
func ClockDifference(ctx context.Context, s System, now func() time.Time) (difference, uncertain time.Duration, ok bool, err error) {
	db, isDatabase := s.(*databaseSystem)
	if !isDatabase || db.shown == nil {
		return 0, 0, false, nil
	}
	asked := now()
	server, err := db.shown(ctx)
	if err != nil {
		return 0, 0, false, err
	}
	difference, uncertain = clockDifference(server, asked, now())
	return difference, uncertain, true, nil
}

// Probe posts a request without events to an HTTP endpoint; ok is false if the system is none.
func Probe(ctx context.Context, s System) (o Outcome, ok bool) {
	if endpoint, ok := s.(*httpSystem); ok {
		return endpoint.checkEmpty(ctx), true
	}
	return Outcome{}, false
}

// Redact replaces the secrets of the addresses in a text.
func (t *Targets) Redact(text string) string {
	return replacer(t.Secrets, func(int) string { return "***" })(text, false)
}
