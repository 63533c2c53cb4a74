package webhook

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// ErrClosed is the outcome of events that are submitted to a closed sink, and of those that
// were not completed when the context of [Sink.Close] ended.
var ErrClosed = errors.New("the sink is closed")

// Error is an answer other than success, or the lack of an answer. Its text is one line. It
// contains no header and no query of the URL.
type Error struct {
	Endpoint string // the URL's host and path
	Event    string // the partition and sequence number, if the error is of one event
	Status   int    // HTTP status; 0: no answer
	Message  string // first line of the answer
	Err      error  // why there is no answer, or it cannot be used
}

func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "webhook: POST %s: ", e.Endpoint)
	if e.Event != "" {
		fmt.Fprintf(&b, "event %s: ", e.Event)
	}
	switch {
	case e.Status == 0:
		fmt.Fprintf(&b, "no answer: %v", e.Err)
	case e.Err != nil:
		fmt.Fprintf(&b, "%d %s: %v", e.Status, http.StatusText(e.Status), e.Err)
	default:
		fmt.Fprintf(&b, "%d %s", e.Status, http.StatusText(e.Status))
	}
	if e.Message != "" {
		fmt.Fprintf(&b, " (%s)", e.Message)
	}
	if a := e.advice(); a != "" {
		b.WriteString(": " + a)
	}
	return b.String()
}

// Unwrap returns why there is no answer.
func (e *Error) Unwrap() error { return e.Err }

// advice returns what to do, or what the engine does.
func (e *Error) advice() string {
	switch {
	case e.Event != "": // its attempts may be over
		return ""
	case e.Status == 0 && (errors.Is(e.Err, ErrClosed) || errors.Is(e.Err, errNoToken)):
		return ""
	case e.Status == 0 && !reached(e.Err):
		return "check the URL, the certificates and the network; it will be retried"
	case e.Status >= 300 && e.Status < 400:
		return "redirects are not followed: write the final URL"
	case e.Status == http.StatusUnauthorized, e.Status == http.StatusForbidden, e.Status == http.StatusProxyAuthRequired:
		return "check the key, the credential or the rights; it will be retried"
	case endpointStatus(e.Status):
		return "check the URL and what is deployed there; it will be retried"
	}
	return "it will be retried"
}

// outcome is what a status means for the events of a request.
type outcome byte

const (
	accepted outcome = iota
	refused          // an event's fault: a batch is halved, and an event that is alone is rejected
	failed           // an outage, or one event makes the receiver fail: the next batches are smaller
	waits            // an outage: the receiver takes nothing for now, whatever it is sent
)

// outcomeOf returns the outcome of a request with a status.
func outcomeOf(status int) outcome {
	switch {
	case status >= 200 && status < 300:
		return accepted
	case status < 400: // redirects, and what is no final answer
		return waits
	}
	switch status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return waits
	}
	if status >= 500 || endpointStatus(status) {
		return failed
	}
	return refused
}

// endpointStatus reports whether a 4xx status is about the endpoint and not about an event. An
// expired key must not make a dead letter of every event.
func endpointStatus(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusProxyAuthRequired,
		http.StatusGone, http.StatusMisdirectedRequest, http.StatusUpgradeRequired:
		return true
	}
	return false
}

// reached reports whether the receiver may have got the request although there is no answer:
// not if there was no connection.
func reached(err error) bool {
	var (
		dns         *net.DNSError
		op          *net.OpError
		certificate *tls.CertificateVerificationError
		record      tls.RecordHeaderError
		alert       tls.AlertError
	)
	switch {
	case errors.Is(err, errNoToken), errors.Is(err, ErrClosed):
		return false
	case errors.As(err, &dns), errors.As(err, &certificate), errors.As(err, &record), errors.As(err, &alert):
		return false
	case errors.As(err, &op) && (op.Op == "dial" || op.Op == "proxyconnect"):
		return false
	}
	return !strings.Contains(err.Error(), "HTTP response to HTTPS client")
}

// rejection is an event that an answer of success names.
type rejection struct {
	index int
	text  string
}

// parseAnswer returns the events that the answer of success to n events rejects. An answer that
// seems to name events, or that is not what it says, is an error: a rejected event must not count
// as done.
func parseAnswer(a *answer, n int) ([]rejection, error) {
	text, err := a.text()
	if err != nil {
		return nil, err
	}
	if !strings.HasPrefix(text, "{") {
		switch {
		case a.status == http.StatusMultiStatus, namesEvents(text):
			return nil, errors.New(`the answer must be {"failed":[{"index":0,"error":"…"}]}`)
		case a.json && text != "" && !json.Valid([]byte(text)):
			return nil, errors.New("the answer says that it is JSON, and is not: correct its Content-Type")
		}
		return nil, nil
	}
	var answer struct{ Failed failedList }
	err = json.Unmarshal([]byte(text), &answer)
	if err == nil && a.status == http.StatusMultiStatus && !answer.Failed.found {
		return nil, errors.New(`the answer has no list "failed"`)
	}
	if err != nil {
		return nil, fmt.Errorf(`the answer must be {"failed":[{"index":0,"error":"…"}]}: %w`, err)
	}
	failed := answer.Failed.entries
	list := make([]rejection, 0, min(len(failed), n))
	named := make([]bool, n)
	for _, f := range failed {
		switch {
		case f.Index == nil:
			return nil, errors.New(`an entry of "failed" has no index`)
		case *f.Index < 0 || *f.Index >= n:
			return nil, fmt.Errorf(`"failed" has index %d, and the request had %d events`, *f.Index, n)
		case named[*f.Index]:
			continue
		}
		named[*f.Index] = true
		list = append(list, rejection{*f.Index, textOf(f.Error)})
	}
	return list, nil
}

// failedList is the list "failed" of an answer. Null is an empty list.
type failedList struct {
	found   bool
	entries []struct {
		Index *int
		Error json.RawMessage
	}
}

// UnmarshalJSON implements [json.Unmarshaler]. Of two lists in one answer the decoder would take
// the last alone.
func (l *failedList) UnmarshalJSON(data []byte) error {
	if l.found {
		return errors.New(`the answer has two lists "failed"`)
	}
	l.found = true
	return json.Unmarshal(data, &l.entries)
}

// text returns the answer without byte order mark and blanks, or an error if it is no plain text: a
// receiver may compress, or use UTF-16, whatever it was asked for.
func (a *answer) text() (string, error) {
	if a.coding != "" {
		return "", fmt.Errorf("the answer has the content coding %q, though the request asks for none: turn compression off", a.coding)
	}
	if bytes.IndexByte(a.body, 0) >= 0 || bytes.HasPrefix(a.body, []byte("\x1f\x8b")) || bytes.HasPrefix(a.body, []byte("\x28\xb5\x2f\xfd")) {
		return "", errors.New("the answer is no text in UTF-8: turn compression off, and write UTF-8")
	}
	return strings.TrimFunc(string(a.body), func(r rune) bool { return r == byteOrderMark || unicode.IsSpace(r) }), nil
}

const byteOrderMark = '\ufeff'

// namesEvents reports whether a text that is no JSON object has a list of rejected events in it.
func namesEvents(text string) bool { return strings.Contains(strings.ToLower(text), `"failed`) }

// contentCoding returns the content coding of an answer, empty if it is in none.
func contentCoding(h http.Header) string {
	for _, line := range h.Values("Content-Encoding") {
		for coding := range strings.SplitSeq(line, ",") {
			if coding = strings.TrimSpace(coding); coding != "" && !strings.EqualFold(coding, "identity") {
				return firstLine(coding)
			}
		}
	}
	return ""
}

// saysJSON reports whether the media type of an answer is one of JSON.
func saysJSON(h http.Header) bool {
	kind, _, _ := strings.Cut(strings.ToLower(h.Get("Content-Type")), ";")
	kind = strings.TrimSpace(kind)
	return kind == "application/json" || strings.HasSuffix(kind, "+json")
}

// textOf returns the text of an entry's error, which may be any value.
func textOf(value json.RawMessage) string {
	var text string
	if json.Unmarshal(value, &text) != nil {
		return string(value)
	}
	return text
}

// retryAfter returns how long a Retry-After header asks to wait, at most limit; 0 if there is
// none that can be read.
func retryAfter(header string, now time.Time, limit time.Duration) time.Duration {
	if header == "" {
		return 0
	}
	if seconds, err := strconv.ParseFloat(strings.TrimSpace(header), 64); err == nil {
		if !(seconds > 0) {
			return 0
		}
		return time.Duration(min(seconds*float64(time.Second), float64(limit)))
	}
	at, err := http.ParseTime(header)
	if err != nil {
		return 0
	}
	return max(0, min(at.Sub(now), limit))
}

// firstLine returns the first line of a text, at most 200 bytes, without control characters.
func firstLine(text string) string {
	text, _, _ = strings.Cut(strings.TrimSpace(text), "\n")
	if len(text) > 200 {
		text = text[:200] + "…"
	}
	text = strings.ToValidUTF8(text, "")
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == 0x2028 || r == 0x2029 {
			return -1
		}
		return r
	}, text))
}
