package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/deadletters"
	"github.com/sluice-go/sluice/internal/jsonscan"
)

const (
	// deadLettersPage is how many dead letters are listed at a time.
	deadLettersPage = 100
	// maxChanged is how many are retried or discarded in one request.
	maxChanged = 10_000
	// bodyShown is how much of a body is shown, and bytesShown of one that is
	// not text.
	bodyShown  = 256 << 10
	bytesShown = 512
	// storeTimeout is how long a request may wait for a store.
	storeTimeout = 15 * time.Second
)

// deadLetterJSON is a dead letter in a list.
type deadLetterJSON struct {
	ID          int64                   `json:"id"`
	Status      sluice.DeadLetterStatus `json:"status"`
	Partition   string                  `json:"partition"`
	Sequence    int64                   `json:"sequence"`
	Key         string                  `json:"key,omitempty"`
	FailedAt    int64                   `json:"failedAt"` // Unix milliseconds
	NextAttempt int64                   `json:"nextAttempt,omitempty"`
	Attempts    int                     `json:"attempts"`
	Error       string                  `json:"error"`
}

func listed(d *sluice.DeadLetter) deadLetterJSON {
	l := deadLetterJSON{
		ID: d.ID, Status: d.Status, Partition: d.Event.Partition, Sequence: d.Event.Sequence, Key: d.Event.Key,
		FailedAt: d.FailedAt.UnixMilli(), Attempts: d.Attempts, Error: cut(d.Error, 1000),
	}
	if !d.NextAttempt.IsZero() {
		l.NextAttempt = d.NextAttempt.UnixMilli()
	}
	return l
}

// wholeJSON is a dead letter with its event.
type wholeJSON struct {
	deadLetterJSON
	Error         string            `json:"error"` // cut much later than in a list
	Offset        string            `json:"offset,omitempty"`
	Incarnation   string            `json:"incarnation"`
	Enqueued      int64             `json:"enqueued,omitempty"`
	MessageID     string            `json:"messageId,omitempty"`
	CorrelationID string            `json:"correlationId,omitempty"`
	ContentType   string            `json:"contentType,omitempty"`
	Properties    map[string]string `json:"properties,omitempty"`
	HasBody       bool              `json:"hasBody"`
	Size          int               `json:"size"`
	Text          string            `json:"text,omitempty"`
	Bytes         []byte            `json:"bytes,omitempty"` // where the body is not text
	Cut           bool              `json:"cut,omitempty"`   // there is more of the body
}

func whole(d *sluice.DeadLetter) wholeJSON {
	e := &d.Event
	l := wholeJSON{
		deadLetterJSON: listed(d), Error: cut(d.Error, bodyShown), Offset: e.Offset, Incarnation: d.Incarnation, MessageID: e.MessageID, CorrelationID: e.CorrelationID,
		ContentType: e.ContentType, HasBody: d.HasBody, Size: len(e.Body),
	}
	if !e.Enqueued.IsZero() {
		l.Enqueued = e.Enqueued.UnixMilli()
	}
	for name, value := range e.Properties {
		if l.Properties == nil {
			l.Properties = map[string]string{}
		}
		l.Properties[name] = cut(fmt.Sprint(value), 4096)
	}
	switch {
	case !utf8.Valid(e.Body):
		l.Cut = len(e.Body) > bytesShown
		l.Bytes = e.Body[:min(len(e.Body), bytesShown)]
	case len(e.Body) > bodyShown:
		l.Cut = true
		l.Text = strings.ToValidUTF8(string(e.Body[:bodyShown]), "")
	default:
		l.Text = string(jsonscan.Indent(e.Body))
	}
	return l
}

// filter reads a search: conditions as the commands have them, or any text,
// which the error is to contain; and a status.
func filter(search, status string) (sluice.DeadLetterFilter, error) {
	var f sluice.DeadLetterFilter
	search = strings.TrimSpace(search)
	if len(search) > deadletters.MaxFilterLength {
		return f, fmt.Errorf("search of %d bytes: at most %d are read", len(search), deadletters.MaxFilterLength)
	}
	if search != "" {
		var err error
		f, err = deadletters.ParseFilter(search, time.Now())
		switch {
		case err != nil && conditions(search):
			return f, err
		case err != nil:
			f = sluice.DeadLetterFilter{ErrorContains: search}
		}
	}
	switch s := sluice.DeadLetterStatus(status); {
	case len(f.Status) > 0: // the search says it
	case status == "all":
	case status == "":
		f.Status = []sluice.DeadLetterStatus{sluice.StatusDead, sluice.StatusRetry}
	case s == sluice.StatusDead || s == sluice.StatusRetry || s == sluice.StatusDiscarded:
		f.Status = []sluice.DeadLetterStatus{s}
	default:
		return f, fmt.Errorf("status %q: must be dead, retry, discarded or all", cut(status, 100))
	}
	return f, nil
}

// conditions reports whether a search is meant as such.
func conditions(search string) bool {
	word := search
	if at := strings.IndexAny(search, "=~"); at >= 0 {
		word = strings.TrimSpace(search[:at])
	} else {
		return false
	}
	switch word {
	case "partition", "status", "key", "error", "since", "before", "sequence":
		return true
	}
	return false
}

func (d *Dashboard) serveDeadLetters(w http.ResponseWriter, r *http.Request, s *shown) {
	if !s.hasDeadLetters(w) {
		return
	}
	query := r.URL.Query()
	f, err := filter(query.Get("search"), query.Get("status"))
	if err == nil && query.Get("after") != "" {
		f.AfterID, err = strconv.ParseInt(query.Get("after"), 10, 64)
	}
	if err != nil {
		fail(w, http.StatusBadRequest, err)
		return
	}
	f.Limit = deadLettersPage + 1
	ctx, cancel := context.WithTimeout(r.Context(), storeTimeout)
	defer cancel()
	list, err := s.DeadLetters.List(ctx, s.Group, f)
	if err != nil {
		fail(w, http.StatusBadGateway, err)
		return
	}
	page := struct {
		Letters []deadLetterJSON `json:"letters"`
		More    bool             `json:"more"`
	}{Letters: []deadLetterJSON{}, More: len(list) > deadLettersPage}
	for i := range list[:min(len(list), deadLettersPage)] {
		page.Letters = append(page.Letters, listed(&list[i]))
	}
	answer(w, page)
}

func (s *shown) hasDeadLetters(w http.ResponseWriter) bool {
	if s.DeadLetters == nil {
		fail(w, http.StatusNotFound, errors.New("this pipeline keeps no dead letters"))
	}
	return s.DeadLetters != nil
}

func (d *Dashboard) serveDeadLetter(w http.ResponseWriter, r *http.Request, s *shown) {
	if !s.hasDeadLetters(w) {
		return
	}
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	if err != nil {
		fail(w, http.StatusBadRequest, fmt.Errorf("%q is not a dead letter's id", cut(r.PathValue("id"), 100)))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), storeTimeout)
	defer cancel()
	deadLetter, err := s.DeadLetters.Get(ctx, s.Group, id)
	switch {
	case errors.Is(err, sluice.ErrNotFound):
		fail(w, http.StatusNotFound, fmt.Errorf("dead letter %d is gone: it was applied, or never was", id))
	case err != nil:
		fail(w, http.StatusBadGateway, err)
	default:
		answer(w, whole(&deadLetter))
	}
}

// selection is which dead letters a request is to change: ids, or all that a
// search finds.
type selection struct {
	IDs    []int64 `json:"ids"`
	All    bool    `json:"all"`
	Search string  `json:"search"`
	Status string  `json:"status"`
}

// changedJSON is how many dead letters a request has changed, and whether there
// may be more that it selects.
type changedJSON struct {
	Letters int64 `json:"letters"`
	More    bool  `json:"more"`
}

// selected returns the dead letters that a request selects. If it can't, it
// answers the request with the error.
func (d *Dashboard) selected(w http.ResponseWriter, r *http.Request, s *shown) (*deadletters.Admin, []sluice.DeadLetter, bool) {
	if !s.hasDeadLetters(w) {
		return nil, nil, false
	}
	var sel selection
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&sel); err != nil {
		fail(w, http.StatusBadRequest, fmt.Errorf("selection: %w", err))
		return nil, nil, false
	}
	f := sluice.DeadLetterFilter{IDs: sel.IDs}
	if sel.All == (len(sel.IDs) > 0) {
		fail(w, http.StatusBadRequest, errors.New("selection: name ids, or all that a search finds"))
		return nil, nil, false
	}
	if sel.All {
		var err error
		if f, err = filter(sel.Search, sel.Status); err != nil {
			fail(w, http.StatusBadRequest, err)
			return nil, nil, false
		}
	}
	f.Limit = maxChanged
	admin := s.admin()
	list, err := admin.Select(r.Context(), f)
	if err != nil {
		fail(w, http.StatusBadGateway, err)
		return nil, nil, false
	}
	return admin, list, true
}

func (s *shown) admin() *deadletters.Admin {
	admin := &deadletters.Admin{Group: s.Group, DeadLetters: s.DeadLetters, Redrive: s.Redrive}
	if admin.Redrive == nil {
		admin.Redrive = func(context.Context) (int, int, error) { return 0, 0, nil }
	}
	return admin
}

// ids returns the ids of dead letters in ascending order as runs, such as 1-3,7.
func ids(list []sluice.DeadLetter) string {
	all := make([]int64, len(list))
	for i := range list {
		all[i] = list[i].ID
	}
	slices.Sort(all)
	var b []byte
	for i := 0; i < len(all); i++ {
		first := i
		for i+1 < len(all) && all[i+1] == all[i]+1 {
			i++
		}
		if first > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, all[first], 10)
		if i > first {
			b = strconv.AppendInt(append(b, '-'), all[i], 10)
		}
	}
	return string(b)
}

func (d *Dashboard) serveDiscard(w http.ResponseWriter, r *http.Request, s *shown) {
	r, cancel := patient(r)
	defer cancel()
	admin, list, ok := d.selected(w, r, s)
	if !ok {
		return
	}
	n, err := admin.Discard(r.Context(), list)
	if err != nil {
		fail(w, http.StatusBadGateway, err)
		return
	}
	d.cfg.Log.Info("dashboard: dead letters discarded", "pipeline", s.Name, "dead_letters", n, "ids", ids(list), "from", remote(r))
	s.view.refreshNow()
	answer(w, changedJSON{Letters: n, More: len(list) == maxChanged})
}

// patient returns a context that bounds how long a request may wait for a store.
func patient(r *http.Request) (*http.Request, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(r.Context(), storeTimeout)
	return r.WithContext(ctx), cancel
}
