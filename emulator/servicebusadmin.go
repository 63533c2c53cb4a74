package emulator

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/xml"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-go/sluice/emulator/internal/servicebus"
)

const (
	maxDescription = 64 << 10 // maximum bytes of a request
	maxPage        = 100      // maximum entities of a page, as on Azure
)

// busAdmin serves the administration API of a namespace: Atom documents over HTTPS, at the
// namespace's TLS address and at one of its own.
type busAdmin struct {
	bus    *ServiceBus
	shared *httpServer  // nil if the namespace has no TLS address
	own    *httpServer  // nil if it has no address of its own
	cert   *certificate // of own
}

// share serves the requests that arrive at the TLS address.
func (a *busAdmin) share(requests net.Listener) { a.shared = a.serveOn(requests, requests) }

// listen serves requests at an address of its own.
func (a *busAdmin) listen(address, certOut string) error {
	l, err := listen(address)
	if err != nil {
		return fmt.Errorf("administration: %w", err)
	}
	if a.cert, err = newCertificate(l.Addr(), address, certOut); err != nil {
		return errors.Join(fmt.Errorf("administration: %w", err), l.Close())
	}
	a.own = a.serveOn(l, tls.NewListener(l, a.cert.serverConfig()))
	return nil
}

func (a *busAdmin) serveOn(at, l net.Listener) *httpServer {
	server := &http.Server{Handler: a.bus.issuer.wrap(a), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute}
	return serveHTTP(at, l, server, "administration API", a.bus.log)
}

// close waits for requests in progress, up to a second.
func (a *busAdmin) close() error { return errors.Join(a.shared.close(), a.own.close()) }

// AdminConnectionString returns the connection string for clients of the administration
// API, "" if there is neither an address for it nor one for TLS. They must trust the
// certificate.
func (s *ServiceBus) AdminConnectionString() string {
	if s.admin.own == nil {
		return s.TLSConnectionString()
	}
	return "Endpoint=sb://" + endpoint(s.admin.own.listener, "443") + s.credentials()
}

// AdminCertPool returns a pool with the certificate of the administration API, nil if
// there is none.
func (s *ServiceBus) AdminCertPool() *x509.CertPool {
	if s.admin.own == nil {
		return s.CertPool()
	}
	return s.admin.cert.pool
}

// adminError is the response to a request that fails.
type adminError struct {
	XMLName xml.Name `xml:"Error"`
	Code    int
	Detail  string
}

func (e *adminError) Error() string { return e.Detail }

func adminErrorf(status int, format string, args ...any) error {
	return &adminError{Code: status, Detail: fmt.Sprintf(format, args...)}
}

// ServeHTTP implements [http.Handler].
func (a *busAdmin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	status, document, err := a.serve(w, r)
	if err != nil {
		var e *adminError
		switch {
		case errors.As(err, &e):
		case errors.Is(err, servicebus.ErrExists):
			e = &adminError{Code: http.StatusConflict, Detail: "SubCode=40900. Conflict. " + err.Error()}
		case errors.Is(err, servicebus.ErrNotFound), errors.Is(err, servicebus.ErrDeleted):
			e = &adminError{Code: http.StatusNotFound, Detail: "SubCode=40400. Not Found. " + err.Error()}
		default: // invalid settings: there is no other error
			e = &adminError{Code: http.StatusBadRequest, Detail: "SubCode=40000. Bad Request. " + err.Error()}
		}
		status, document = e.Code, e
	}
	if document == nil {
		w.WriteHeader(status)
		return
	}
	body, err := xml.Marshal(completeURLs(r.Host, document))
	if err != nil {
		a.bus.log.Error("administration API: encoding a response failed", "error", err)
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	body = bytes.ReplaceAll(body, []byte("&#39;"), []byte("'")) // as Azure writes it: clients search for its texts
	w.Header().Set("Content-Type", "application/atom+xml;type=entry;charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(body) // the error is the client's
}

func (a *busAdmin) serve(w http.ResponseWriter, r *http.Request) (status int, document any, err error) {
	manages, err := a.authenticate(r)
	if err != nil {
		return 0, nil, err
	}
	path := strings.Trim(r.URL.Path, "/")
	if !manages && !a.missing(r, path) {
		return 0, nil, a.forbidden(r, path)
	}
	part := strings.Split(path, "/")
	last := len(part) - 1
	is := func(i int, name string) bool { return i > 0 && i <= last && strings.EqualFold(part[i], name) }
	switch {
	case strings.EqualFold(path, "$Resources/Queues"):
		return a.list(r, "Queues", describeAll(a.bus.broker.Queues(), describeQueue))
	case strings.EqualFold(path, "$Resources/Topics"):
		return a.list(r, "Topics", describeAll(a.bus.broker.Topics(), describeTopic))
	case strings.EqualFold(path, "$namespaceinfo"):
		return a.namespace(r)
	case is(last, "Subscriptions"):
		t, err := a.topic(strings.Join(part[:last], "/"))
		if err != nil {
			return 0, nil, err
		}
		return a.list(r, "Subscriptions", describeAll(t.Subscriptions(), describeSubscription))
	case is(last-1, "Subscriptions"):
		t, err := a.topic(strings.Join(part[:last-1], "/"))
		if err != nil {
			return 0, nil, err
		}
		return a.subscription(w, r, t, part[last])
	case is(last-2, "Subscriptions") && is(last, "Rules"), is(last-3, "Subscriptions") && is(last-1, "Rules"):
		return a.rules(r, path)
	}
	return a.entity(w, r, path)
}

// namespace describes the namespace.
func (a *busAdmin) namespace(r *http.Request) (int, any, error) {
	if r.Method != http.MethodGet {
		return 0, nil, adminErrorf(http.StatusMethodNotAllowed, "the namespace can be read only")
	}
	tier, units := "Standard", 0
	if a.bus.azure.premium {
		tier, units = "Premium", 1
	}
	host, _, _ := strings.Cut(r.Host, ":")
	info := namespaceInfo{CreatedTime: stamp(a.bus.started), ModifiedTime: stamp(a.bus.started), MessagingSKU: tier, Units: units, Name: host, Type: "Messaging"}
	return http.StatusOK, atomEntry{ID: "$namespaceinfo", Title: host, Content: atomContent{Type: "application/xml", Description: info}}, nil
}

// rules lists the only rule of a subscription. Requests to change rules are rejected.
func (a *busAdmin) rules(r *http.Request, path string) (int, any, error) {
	part := strings.Split(path, "/")
	at := slices.IndexFunc(part, func(p string) bool { return strings.EqualFold(p, "Subscriptions") })
	t, err := a.topic(strings.Join(part[:at], "/"))
	if err != nil {
		return 0, nil, err
	}
	q, ok := t.Subscription(part[at+1])
	switch {
	case !ok:
		return 0, nil, fmt.Errorf("subscription %.300s: %w", part[at+1], servicebus.ErrNotFound)
	case r.Method != http.MethodGet:
		return 0, nil, adminErrorf(http.StatusBadRequest, "SubCode=40000. Rules are not supported here: every subscription has the rule %s, which lets all messages pass.", defaultRule)
	case len(part) == at+3:
		return a.list(r, "Rules", []atomEntry{describeRule(q)})
	case strings.EqualFold(part[at+3], defaultRule):
		return http.StatusOK, describeRule(q), nil
	}
	return 0, nil, fmt.Errorf("rule %.60s: %w", part[at+3], servicebus.ErrNotFound)
}

func (a *busAdmin) topic(name string) (*servicebus.Topic, error) {
	t, ok := a.bus.broker.Topic(name)
	if !ok {
		return nil, fmt.Errorf("topic %.300s: %w", name, servicebus.ErrNotFound)
	}
	return t, nil
}

// list returns one page of entities.
func (a *busAdmin) list(r *http.Request, title string, all []atomEntry) (int, any, error) {
	number := func(name string, missing int) (int, error) {
		text := r.URL.Query().Get(name)
		if text == "" {
			return missing, nil
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			return 0, adminErrorf(http.StatusBadRequest, "SubCode=40000. %s must be a number, and not negative.", name)
		}
		return n, nil
	}
	skip, err1 := number("$skip", 0)
	top, err2 := number("$top", maxPage)
	if err := errors.Join(err1, err2); err != nil {
		return 0, nil, err
	}
	if r.Method != http.MethodGet {
		return 0, nil, adminErrorf(http.StatusMethodNotAllowed, "a list can be read only")
	}
	top = min(top, maxPage)
	rest := all[min(skip, len(all)):]
	feed := &atomFeed{Title: title, Entries: rest[:min(top, len(rest))]}
	link := func(rel string, skip int) {
		query := url.Values{"$skip": {strconv.Itoa(skip)}, "$top": {strconv.Itoa(top)}}
		feed.Links = append(feed.Links, atomLink{Rel: rel, Href: (&url.URL{Scheme: "https", Host: r.Host, Path: r.URL.Path, RawQuery: query.Encode()}).String()})
	}
	link("self", skip)
	if top > 0 && len(rest) > top {
		link("next", skip+top)
	}
	return http.StatusOK, feed, nil
}

// entity serves a queue or a topic. Reading one that doesn't exist returns an empty
// list, as on Azure.
func (a *busAdmin) entity(w http.ResponseWriter, r *http.Request, name string) (int, any, error) {
	b := a.bus.broker
	q, isQueue := b.Queue(name)
	t, isTopic := b.Topic(name)
	switch r.Method {
	case http.MethodGet:
		switch {
		case isQueue:
			return http.StatusOK, describeQueue(q), nil
		case isTopic:
			return http.StatusOK, describeTopic(t), nil
		}
		return http.StatusOK, &atomFeed{Title: "Publicly Listed Services"}, nil
	case http.MethodDelete:
		return http.StatusOK, nil, b.Delete(name)
	case http.MethodPut:
	default:
		return 0, nil, adminErrorf(http.StatusMethodNotAllowed, "the methods are GET, PUT and DELETE")
	}
	entry, err := readEntry(w, r)
	update := r.Header.Get("If-Match") != ""
	switch {
	case err != nil:
		return 0, nil, err
	case entry.Queue != nil:
		cfg, err := a.queueConfig(entry.Queue)
		if err != nil {
			return 0, nil, err
		}
		return put("Queue", update, isQueue, q, cfg, describeQueue, func() (*servicebus.Queue, error) { return b.CreateQueue(name, cfg) })
	case entry.Topic == nil:
		return 0, nil, adminErrorf(http.StatusBadRequest, "SubCode=40000. The request has neither a QueueDescription nor a TopicDescription.")
	}
	cfg, err := entry.Topic.topicConfig()
	if err == nil {
		err = a.bus.azure.checkSize(cfg.MaxBytes)
	}
	switch {
	case err != nil:
	case !update:
		if t, err = b.CreateTopic(name, cfg); err == nil {
			return http.StatusCreated, describeTopic(t), nil
		}
	case !isTopic:
		err = fmt.Errorf("topic %.300s: %w", name, servicebus.ErrNotFound)
	default:
		if err = t.Configure(cfg); err == nil {
			return http.StatusOK, describeTopic(t), nil
		}
	}
	return 0, nil, err
}

// queueConfig converts the description of a queue or subscription.
func (a *busAdmin) queueConfig(d *description) (*servicebus.QueueConfig, error) {
	cfg, err := d.config()
	if err == nil {
		err = a.bus.azure.checkQueue(cfg)
	}
	return cfg, err
}

func (a *busAdmin) subscription(w http.ResponseWriter, r *http.Request, t *servicebus.Topic, name string) (int, any, error) {
	q, ok := t.Subscription(name)
	switch {
	case r.Method == http.MethodDelete:
		return http.StatusOK, nil, t.Unsubscribe(name)
	case r.Method == http.MethodGet && ok:
		return http.StatusOK, describeSubscription(q), nil
	case r.Method == http.MethodGet:
		return 0, nil, fmt.Errorf("subscription %.300s: %w", name, servicebus.ErrNotFound)
	case r.Method != http.MethodPut:
		return 0, nil, adminErrorf(http.StatusMethodNotAllowed, "the methods are GET, PUT and DELETE")
	}
	entry, err := readEntry(w, r)
	if err != nil {
		return 0, nil, err
	}
	if entry.Subscription == nil {
		return 0, nil, adminErrorf(http.StatusBadRequest, "SubCode=40000. The request has no SubscriptionDescription.")
	}
	cfg, err := a.queueConfig(entry.Subscription)
	if err != nil {
		return 0, nil, err
	}
	return put("Subscription", r.Header.Get("If-Match") != "", ok, q, cfg, describeSubscription, func() (*servicebus.Queue, error) { return t.Subscribe(name, cfg) })
}

// put updates or creates a queue or subscription.
func put(kind string, update, there bool, q *servicebus.Queue, cfg *servicebus.QueueConfig, describe func(*servicebus.Queue) atomEntry, create func() (*servicebus.Queue, error)) (int, any, error) {
	status := http.StatusOK
	var err error
	switch {
	case update && !there:
		err = fmt.Errorf("update: %w", servicebus.ErrNotFound)
	case update && cfg.Sessions != q.Config().Sessions:
		err = adminErrorf(http.StatusBadRequest, "SubCode=40000. The value for the RequiresSession property of an existing %s cannot be changed.", kind)
	case update:
		err = q.Configure(cfg)
	default:
		status = http.StatusCreated
		q, err = create()
	}
	if err != nil {
		return 0, nil, err
	}
	return status, describe(q), nil
}
