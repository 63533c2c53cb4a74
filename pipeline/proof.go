package pipeline

import "sync/atomic"

// proof remembers whether a part of the pipeline (the decoder, the routes, a mapping) has worked
// for an event since the process began. As long as it has not, an event that it rejects may be good
// and the part wrong. The engine then tries the part on the events that wait before any of them
// becomes a dead letter.
type proof struct{ worked atomic.Bool }

// record returns the part's error for an event. It notes if there is none.
func (p *proof) record(err error) error {
	if err != nil {
		return &partError{err, p}
	}
	if !p.worked.Load() {
		p.worked.Store(true)
	}
	return nil
}

// partError is the error of a part for an event.
type partError struct {
	err   error
	proof *proof
}

func (e *partError) Error() string { return e.err.Error() }
func (e *partError) Unwrap() error { return e.err }

// Unproved reports whether the part has not worked for any event yet. The engine asks for it.
func (e *partError) Unproved() bool { return !e.proof.worked.Load() }
