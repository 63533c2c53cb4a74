package web

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

const (
	// maxStreams is how many browsers may be connected at once.
	maxStreams = 64
	// sendTimeout is how long a browser may take for one message.
	sendTimeout = 10 * time.Second
)

// serveHistory answers with what the meter remembers.
func (d *Dashboard) serveHistory(w http.ResponseWriter, _ *http.Request, s *shown) {
	if s.Meter == nil {
		fail(w, http.StatusNotFound, errors.New("no consumer of this pipeline runs in this process"))
		return
	}
	answer(w, history(s.Meter, seconds))
}

// serveLive sends snapshots as server-sent events, one a second, which also shows
// the browser that the process lives: the summary as "tick" and, with rows=1, the
// rows that have changed as "rows". It ends with the session, or with
// [Dashboard.Run].
func (d *Dashboard) serveLive(w http.ResponseWriter, r *http.Request, s *shown) {
	if !d.running.Load() {
		fail(w, http.StatusServiceUnavailable, errors.New("the dashboard does not run"))
		return
	}
	select {
	case d.streams <- struct{}{}:
		defer func() { <-d.streams }()
	default:
		w.Header().Set("Retry-After", "30")
		fail(w, http.StatusServiceUnavailable, fmt.Errorf("%d browsers are connected, which is the limit: close one, or try again later", maxStreams))
		return
	}
	defer s.view.watch()()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	out := stream{w: w, control: http.NewResponseController(w), rows: r.URL.Query().Get("rows") == "1"}
	// The server's time limits are for requests that are answered at once, not for
	// a stream.
	_ = out.control.SetReadDeadline(time.Time{})
	if out.send([]byte("retry: 2000\n\n")) != nil {
		return
	}
	s.view.render(s, time.Now())
	for {
		f, next := s.view.current()
		if f != nil && out.snapshot(f) != nil {
			return
		}
		select {
		case <-next:
		case <-r.Context().Done():
			return
		case <-d.stopped:
			return
		}
		if d.auth.authenticate(r) != nil {
			return
		}
	}
}

// current returns the newest snapshot, and a channel that is closed when there is
// a newer one.
func (v *view) current() (*snapshot, <-chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.snapshot, v.next
}

// stream is one browser.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	rows    bool
	seen    int64 // the last snapshot sent
	text    []byte
}

func (s *stream) snapshot(f *snapshot) error {
	s.text = append(s.text[:0], "event: tick\ndata: "...)
	s.text = append(s.text, f.summary...)
	s.text = append(s.text, "\n\n"...)
	if s.rows {
		s.text = appendRows(s.text, f, s.seen)
	}
	s.seen = f.number
	return s.send(s.text)
}

// appendRows adds the rows that have changed since the snapshot seen, or all of
// them if partitions came or went.
func appendRows(text []byte, f *snapshot, seen int64) []byte {
	all := seen < f.shape
	text = append(text, `event: rows`+"\n"+`data: {"all":`...)
	text = strconv.AppendBool(text, all)
	text = append(text, `,"rows":[`...)
	first := true
	for i := range f.rows {
		if !all && f.rows[i].changed <= seen {
			continue
		}
		if !first {
			text = append(text, ',')
		}
		first = false
		text = append(text, f.rows[i].text...)
	}
	return append(text, "]}\n\n"...)
}

func (s *stream) send(text []byte) error {
	if err := s.control.SetWriteDeadline(time.Now().Add(sendTimeout)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	if _, err := s.w.Write(text); err != nil {
		return err
	}
	return s.control.Flush()
}
