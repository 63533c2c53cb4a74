package webhook

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

// maxAnswer bounds the length of an answer.
const maxAnswer = 1 << 20

var (
	errNoToken = errors.New("no token from Entra ID")
	errTooLong = fmt.Errorf("the answer is longer than %d MiB", maxAnswer>>20)
)

// answer is the answer to a request.
type answer struct {
	status     int // 0: there is none
	body       []byte
	coding     string        // its content coding
	json       bool          // its media type is one of JSON
	retryAfter time.Duration // as Retry-After asks
	err        *Error        // unless the status is one of success
}

// post sends a body with messages of one origin and waits for the answer, at most for the timeout.
func (s *Sink) post(ctx context.Context, of *origin, messages []*Message, body []byte) answer {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(body))
	if err != nil {
		return s.noAnswer(err)
	}
	secrets, err := s.authorize(req)
	if err != nil {
		return s.noAnswer(err)
	}
	s.describe(req.Header, of, messages)
	s.sign(req.Header, of, messages, body)
	resp, err := s.client.Do(req)
	if err != nil {
		return s.noAnswer(s.cause(ctx, err))
	}
	defer resp.Body.Close()
	a := answer{status: resp.StatusCode, coding: contentCoding(resp.Header), json: saysJSON(resp.Header)}
	a.body, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if len(a.body) > maxAnswer {
		err, a.body = errTooLong, a.body[:maxAnswer]
	}
	if a.retryAfter = retryAfter(resp.Header.Get("Retry-After"), time.Now(), s.cfg.MaxRetryAfter); a.status < 200 || a.status >= 300 {
		a.err = &Error{Endpoint: s.endpoint, Status: a.status}
		if text, err := a.text(); err == nil {
			a.err.Message = shown([]byte(text), secrets)
		}
	} else if err != nil { // without it, which events are done is unknown
		return s.noAnswer(fmt.Errorf("%d %s, and then: %w", a.status, http.StatusText(a.status), s.cause(ctx, err)))
	}
	return a
}

// authorize sets the headers of the configuration and the token, and returns what the answer must
// not show.
func (s *Sink) authorize(req *http.Request) (secrets []string, err error) {
	for name, values := range s.cfg.Header {
		req.Header[http.CanonicalHeaderKey(name)] = values
	}
	req.Header.Set("User-Agent", "sluice")
	req.Header.Set("Accept-Encoding", "identity") // without it a receiver may choose any coding
	if s.cfg.Credential == nil {
		return s.secrets, nil
	}
	token, err := s.cfg.Credential.GetToken(req.Context(), policy.TokenRequestOptions{Scopes: []string{s.cfg.Scope}})
	if err != nil {
		return nil, fmt.Errorf("%w: %s", errNoToken, firstLine(err.Error()))
	}
	req.Header.Set("Authorization", "Bearer "+token.Token)
	return append(s.secrets[:len(s.secrets):len(s.secrets)], token.Token), nil
}

// Check checks that the endpoint can be reached, with a HEAD request. Every answer but a redirect
// is fine: an endpoint need not know HEAD.
func (s *Sink) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, s.url, nil)
	if err == nil {
		_, err = s.authorize(req)
	}
	var resp *http.Response
	if err == nil {
		resp, err = s.client.Do(req)
	}
	if err != nil {
		return s.noAnswer(s.cause(ctx, err)).err
	}
	resp.Body.Close()
	if outcomeOf(resp.StatusCode) == waits && resp.StatusCode < 400 {
		return &Error{Endpoint: s.endpoint, Status: resp.StatusCode}
	}
	return nil
}

// Probe posts a request without events, with the authorization and the signature of every other,
// and returns nil if the endpoint answers with success as it has to. It changes nothing in a
// receiver that handles each event of a request. The error is an [*Error].
func (s *Sink) Probe(ctx context.Context) error {
	of := origin{topic: "sluice-check", group: "sluice-check", partition: "0"}
	var body []byte
	if s.cfg.Format != JSONLines {
		body = []byte("[]")
	}
	a := s.post(ctx, &of, nil, body)
	if a.err != nil {
		return a.err
	}
	if _, err := parseAnswer(&a, 0); err != nil {
		return &Error{Endpoint: s.endpoint, Status: a.status, Err: err}
	}
	return nil
}

// describe sets the headers that say what is in a request.
func (s *Sink) describe(h http.Header, of *origin, messages []*Message) {
	attempt := 0
	for _, m := range messages {
		attempt = max(attempt, m.attempts)
	}
	h.Set("Content-Type", s.cfg.Format.contentType())
	h.Set("Sluice-Source", of.source())
	h.Set("Sluice-Topic", url.PathEscape(of.topic))
	h.Set("Sluice-Incarnation", url.PathEscape(of.incarnation))
	h.Set("Sluice-Partition", url.PathEscape(of.partition))
	h.Set("Sluice-Group", url.PathEscape(of.group))
	h.Set("Sluice-Epoch", strconv.FormatInt(of.epoch, 10))
	if n := len(messages); n > 0 {
		h.Set("Sluice-First", strconv.FormatInt(messages[0].Event.Sequence, 10))
		h.Set("Sluice-Last", strconv.FormatInt(messages[n-1].Event.Sequence, 10))
	}
	if len(messages) == 1 && messages[0].TraceParent != "" {
		h.Set("Traceparent", messages[0].TraceParent)
		if state := messages[0].TraceState; state != "" {
			h.Set("Tracestate", state)
		}
	}
	h.Set("Sluice-Count", strconv.Itoa(len(messages)))
	h.Set("Sluice-Attempt", strconv.Itoa(attempt))
}

// sign sets the headers of Standard Webhooks (standardwebhooks.com, version 1): the id of a
// request is the same for each request with the same events.
func (s *Sink) sign(h http.Header, of *origin, messages []*Message, body []byte) {
	sum := sha256.New()
	io.WriteString(sum, of.source())
	var number [8]byte
	for _, m := range messages {
		binary.BigEndian.PutUint64(number[:], uint64(m.Event.Sequence))
		sum.Write(number[:])
	}
	id := "msg_" + base64.RawURLEncoding.EncodeToString(sum.Sum(nil)[:18])
	at := strconv.FormatInt(time.Now().Unix(), 10)
	h.Set("Webhook-Id", id)
	h.Set("Webhook-Timestamp", at)
	signatures := make([]string, len(s.cfg.Keys))
	for i, key := range s.cfg.Keys {
		mac := hmac.New(sha256.New, key)
		io.WriteString(mac, id+"."+at+".")
		mac.Write(body)
		signatures[i] = "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	}
	if len(signatures) > 0 {
		h.Set("Webhook-Signature", strings.Join(signatures, " "))
	}
}

func (s *Sink) noAnswer(err error) answer {
	return answer{err: &Error{Endpoint: s.endpoint, Err: err}}
}

// cause returns why a request has no answer, without the URL, which may contain a key.
func (s *Sink) cause(ctx context.Context, err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	switch {
	case s.sending.Err() != nil:
		return ErrClosed
	case errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		return fmt.Errorf("%w after %v", context.DeadlineExceeded, s.cfg.Timeout)
	}
	return err
}

// shown returns the first line of what a receiver has answered, without secrets: some receivers
// repeat the headers.
func shown(text []byte, secrets []string) string {
	line := string(text[:min(len(text), 4096)])
	for _, secret := range secrets {
		line = strings.ReplaceAll(line, secret, "[secret]")
	}
	return firstLine(line)
}

// newTransport returns a transport that keeps every connection. There are never more
// connections than requests in flight, and a handshake for each request would cost
// more than the request.
func newTransport(cfg *Config) *http.Transport {
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: min(10*time.Second, cfg.Timeout/2), KeepAlive: 30 * time.Second}).DialContext,
		TLSClientConfig:        cfg.TLS,
		TLSHandshakeTimeout:    min(10*time.Second, cfg.Timeout/2),
		ForceAttemptHTTP2:      true,
		MaxIdleConnsPerHost:    4096,
		IdleConnTimeout:        90 * time.Second,
		DisableCompression:     true,
		MaxResponseHeaderBytes: 64 << 10,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: cfg.Timeout / 2, PingTimeout: cfg.Timeout / 4},
	}
}
