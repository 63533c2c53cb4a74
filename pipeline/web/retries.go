package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/deadletters"
)

const (
	// maxFollowed is how many retries are followed at once, and followFor how
	// long.
	maxFollowed   = 8
	followTimeout = 10 * time.Minute
	// retriesShown is how many retries are shown at most, shownFor how long after
	// they have begun unless they go on, and failuresShown how many dead letters
	// of each that have failed again.
	retriesShown  = 3
	shownFor      = 10 * time.Minute
	failuresShown = 5
)

// retries holds the latest requests to retry dead letters, newest first.
type retries struct {
	mu     sync.Mutex
	last   int
	newest []*retry
}

// retry is one request to retry dead letters.
type retry struct {
	shown       *shown
	admin       *deadletters.Admin
	deadLetters []sluice.DeadLetter

	mu   sync.Mutex
	json runJSON
}

// runJSON is the progress or the result of a retry.
type runJSON struct {
	ID        int              `json:"id"`
	Began     int64            `json:"began"` // Unix milliseconds
	Ended     bool             `json:"ended"`
	Marked    int64            `json:"marked"`
	Applied   int              `json:"applied"`
	Failed    int              `json:"failed"`
	Discarded int              `json:"discarded"`
	Waiting   int              `json:"waiting"`
	Failures  []deadLetterJSON `json:"failures,omitempty"`
	Error     string           `json:"error,omitempty"`
}

func (s *retries) add(r *retry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	r.json.ID = s.last
	s.newest = slices.Insert(s.newest, 0, r)
	s.newest = s.newest[:min(len(s.newest), retriesShown)]
}

// list returns those that are shown.
func (s *retries) list(now time.Time) []runJSON {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := []runJSON{}
	for _, r := range s.newest {
		r.mu.Lock()
		so := r.json
		r.mu.Unlock()
		if !so.Ended || now.Sub(time.UnixMilli(so.Began)) < shownFor {
			list = append(list, so)
		}
	}
	return list
}

// run follows the retry until nothing of it waits any more.
func (r *retry) run(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, followTimeout)
	defer cancel()
	_, err := r.admin.Follow(ctx, r.deadLetters, func(so deadletters.Outcome) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.json.Applied, r.json.Failed, r.json.Discarded, r.json.Waiting = so.Applied, len(so.Failed), so.Discarded, len(so.Waiting)
		r.json.Failures = nil
		for i := range so.Failed[:min(len(so.Failed), failuresShown)] {
			r.json.Failures = append(r.json.Failures, listed(&so.Failed[i]))
		}
	})
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("after %v some still wait for an owner of their partition; they stay marked", followTimeout)
	}
	r.end(err)
	r.shown.view.refreshNow()
}

func (r *retry) end(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.json.Ended, r.json.Error = true, reason(err)
	r.admin, r.deadLetters = nil, nil
}

func (d *Dashboard) serveRetry(w http.ResponseWriter, r *http.Request, s *shown) {
	if !d.running.Load() {
		fail(w, http.StatusServiceUnavailable, errors.New("the dashboard does not run"))
		return
	}
	r, cancel := patient(r)
	defer cancel()
	admin, list, ok := d.selected(w, r, s)
	if !ok {
		return
	}
	marked, err := admin.Mark(r.Context(), list, time.Time{})
	if err != nil {
		fail(w, http.StatusBadGateway, err)
		return
	}
	d.cfg.Log.Info("dashboard: dead letters marked for a retry", "pipeline", s.Name, "dead_letters", marked, "ids", ids(list), "from", remote(r))
	s.view.refreshNow()
	run := &retry{shown: s, admin: admin, deadLetters: list, json: runJSON{Began: time.Now().UnixMilli(), Marked: marked, Waiting: len(list)}}
	s.retries.add(run)
	select {
	case d.followed <- struct{}{}:
		d.follow <- run // which has room for as many as there are tokens
	default:
		run.end(errors.New("too many retries are under way to follow this one; its dead letters are marked"))
	}
	answer(w, changedJSON{Letters: marked, More: len(list) == maxChanged})
}
