package cosmos

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"

	"github.com/sluice-go/sluice/internal/finalanswer"
)

// maxAnswer bounds the length of a response.
const maxAnswer = 64 << 20

var (
	errNoToken  = errors.New("no token from Entra ID")
	errTooLong  = fmt.Errorf("the response is longer than %d MB", maxAnswer>>20)
	errEndpoint = errors.New("endpoint: must be a URL like https://account.documents.azure.com:443/, without user, path or query")
)

// account sends requests to one container through the SDK, which finds the write
// region and authenticates.
//
// The SDK has no bulk requests, and does not allow custom requests with its client.
// So each request is sent as a transactional batch, whose method, headers and body
// are replaced by a policy at the end of the SDK's pipeline. The response is stored
// in the request. The SDK gets an empty successful response, so that it neither
// reads the response nor retries.
type account struct {
	host, database, container string

	secret  []byte // the key; nil with Entra ID
	connect func(*azcosmos.ClientOptions) (*azcosmos.Client, error)
	options azcosmos.ClientOptions
	timeout time.Duration
	idle    func() // closes the connections that are not in use

	regions atomic.Pointer[regions] // nil until the SDK has read the account

	ctx     context.Context // ends with the account
	stop    context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex
	current *connection
	closed  bool
	finding bool      // findRegion runs
	found   time.Time // when it ended last
}

// connection is a client of the SDK.
type connection struct {
	client      *azcosmos.Client
	container   *azcosmos.ContainerClient
	placeholder azcosmos.TransactionalBatch // the batch that every request is sent as; never changed
	answered    atomic.Int64                // when the region last took a write, in Unix nanoseconds; 0: never
}

func newAccount(endpoint, database, container string, timeout time.Duration, options azcosmos.ClientOptions) (*account, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
		return nil, errEndpoint // not quoted: it could be a connection string, with its key
	}
	if database == "" || container == "" {
		return nil, errors.New("the name of the database or the container is missing")
	}
	if strings.ContainsAny(database+container, `/\?#`) {
		return nil, fmt.Errorf(`database %q, container %q: names must not contain /, \, ? or #`, database, container)
	}
	a := &account{host: u.Host, database: database, container: container, options: options, timeout: timeout, idle: func() {}}
	a.options.Retry = policy.RetryOptions{MaxRetries: -1}
	a.options.PerRetryPolicies = append(a.options.PerRetryPolicies[:len(options.PerRetryPolicies):len(options.PerRetryPolicies)], &requestPolicy{a})
	if a.options.Transport == nil {
		t := newTransport(timeout)
		a.options.Transport, a.idle = &http.Client{Transport: finalanswer.Transport(t)}, t.CloseIdleConnections
	}
	a.options.Transport = bounded{a.options.Transport}
	a.ctx, a.stop = context.WithCancel(context.Background())
	return a, nil
}

// newTransport returns a transport that keeps every connection. There are never more
// connections than requests in flight, and a handshake for each request would cost
// more than the request.
func newTransport(timeout time.Duration) *http.Transport {
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: min(5*time.Second, timeout/2), KeepAlive: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout: min(5*time.Second, timeout/2),
		ForceAttemptHTTP2:   true,
		MaxIdleConnsPerHost: 4096,
		IdleConnTimeout:     90 * time.Second,
		HTTP2:               &http.HTTP2Config{SendPingTimeout: timeout / 2, PingTimeout: timeout / 4},
	}
}

// bounded limits the length of responses.
type bounded struct{ policy.Transporter }

func (b bounded) Do(req *http.Request) (*http.Response, error) {
	resp, err := b.Transporter.Do(req)
	if err == nil {
		resp.Body = &boundedBody{ReadCloser: resp.Body, left: maxAnswer}
	}
	return resp, err
}

type boundedBody struct {
	io.ReadCloser
	left int
}

func (b *boundedBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errTooLong
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// link returns the container's name in signatures.
func (a *account) link() string { return "dbs/" + a.database + "/colls/" + a.container }

// name returns the container's name in errors.
func (a *account) name() string { return a.host + "/" + a.database + "/" + a.container }

// request is a request to the container, with its response.
type request struct {
	method string
	kind   string // the kind of resource: "docs", "colls", "pkranges"
	id     string // of the document; empty: all
	header [][2]string
	body   []byte

	sent   bool   // it has passed the pipeline of the SDK
	host   string // of the region that it was sent to
	status int    // 0: no response
	head   http.Header
	answer bytes.Buffer
	err    error
}

// send sends a request and waits for the response, at most for the timeout. It
// returns nil if there is a response, whatever its status.
func (a *account) send(ctx context.Context, r *request) *Error {
	via, err := a.open()
	if err != nil {
		return &Error{Container: a.name(), Err: err}
	}
	e := a.sendVia(ctx, via, r)
	switch {
	case r.sent && r.method != http.MethodGet && !r.unreachable() && !r.notHere():
		via.answered.Store(time.Now().UnixNano())
	case !r.sent:
		// The SDK caches for minutes that it could not read the account.
		a.drop(via)
	case r.unreachable() && ctx.Err() == nil:
		a.findRegion(via, r.host)
	}
	return e
}

func (a *account) sendVia(ctx context.Context, via *connection, r *request) *Error {
	r.sent, r.status, r.head, r.err = false, 0, nil, nil
	r.answer.Reset()
	limited, cancel := context.WithTimeout(context.WithValue(ctx, requestKey{}, r), a.timeout)
	defer cancel()
	_, err := via.container.ExecuteTransactionalBatch(limited, via.placeholder, &azcosmos.TransactionalBatchOptions{EnableContentResponseOnWrite: true})
	switch {
	case r.status != 0:
		return nil
	case r.sent:
		err = r.err
	default:
		if answer, ok := errors.AsType[*azcore.ResponseError](err); ok && answer.StatusCode != 0 {
			r.status, r.head = answer.StatusCode, http.Header{}
			if answer.RawResponse != nil {
				r.head = answer.RawResponse.Header
			}
			return nil
		}
		if a.secret == nil && err != nil && errors.As(err, new(interface{ NonRetriable() })) {
			err = fmt.Errorf("%w: %s", errNoToken, firstLine(strings.TrimPrefix(err.Error(), "failed to retrieve account properties: ")))
		}
	}
	if err == nil {
		err = errors.New("the client did not send the request")
	}
	if limited.Err() != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w after %v", context.DeadlineExceeded, a.timeout)
	}
	return &Error{Container: a.name(), Err: withoutURL(err)}
}

// errorOf returns the error of a response.
func (a *account) errorOf(r *request) *Error {
	e := &Error{Container: a.name(), Status: r.status, SubStatus: subStatus(r.head), ActivityID: firstLine(r.head.Get("x-ms-activity-id"))}
	var body struct{ Message string }
	if json.Unmarshal(r.answer.Bytes(), &body) == nil {
		e.Message = firstLine(body.Message)
	}
	return e
}

func subStatus(head http.Header) int {
	n, _ := strconv.Atoi(head.Get("x-ms-substatus"))
	return n
}

// retryAfter returns how long the account asks to wait, 0 if it does not.
func retryAfter(head http.Header) time.Duration {
	ms, err := strconv.ParseFloat(head.Get("x-ms-retry-after-ms"), 64)
	return milliseconds(ms, err)
}

// milliseconds bounds a wait to a minute, in case the account sends a wrong one.
func milliseconds(ms float64, err error) time.Duration {
	if err != nil || !(ms > 0) {
		return 0
	}
	return time.Duration(min(ms, 60_000) * float64(time.Millisecond))
}

func charge(head http.Header) float64 {
	ru, err := strconv.ParseFloat(head.Get("x-ms-request-charge"), 64)
	if err != nil || !(ru > 0) {
		return 0
	}
	return ru
}

// open returns the current client, and connects if there is none.
func (a *account) open() (*connection, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.current == nil {
		c, err := a.dial(a.options.PreferredRegions)
		if err != nil {
			return nil, err
		}
		a.current = c
	}
	return a.current, nil
}

func (a *account) dial(preferred []string) (*connection, error) {
	options := a.options
	options.PreferredRegions = preferred
	client, err := a.connect(&options)
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	container, err := client.NewContainer(a.database, a.container)
	if err != nil {
		client.Close()
		return nil, fmt.Errorf("client: %w", err)
	}
	c := &connection{client: client, container: container, placeholder: container.NewTransactionalBatch(azcosmos.NewPartitionKey())}
	c.placeholder.DeleteItem("-", nil)
	return c, nil
}

// drop makes the next request connect again, if via is still the current client.
func (a *account) drop(via *connection) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.current == via {
		via.client.Close()
		a.current = nil
	}
}

func (a *account) close() {
	a.mu.Lock()
	a.closed = true
	via := a.current
	a.mu.Unlock()
	a.stop()
	a.running.Wait()
	if via != nil {
		a.drop(via)
	}
	a.idle()
}

type requestKey struct{}

// requestPolicy is the policy that replaces the SDK's request with ours.
type requestPolicy struct{ account *account }

func (e *requestPolicy) Do(req *policy.Request) (*http.Response, error) {
	raw := req.Raw()
	r, ours := raw.Context().Value(requestKey{}).(*request)
	if !ours || !strings.HasPrefix(raw.URL.Path, "/dbs/") {
		// The SDK reads the account's regions without a deadline of its own.
		ctx, cancel := context.WithTimeout(raw.Context(), e.account.timeout)
		defer cancel()
		resp, err := req.WithContext(ctx).Next()
		if err == nil && strings.Trim(raw.URL.Path, "/") == "" {
			e.account.noteRegions(resp)
		}
		return resp, err
	}
	refused := r.status != 0 && r.host == raw.URL.Host // notHere, the last time
	r.sent, r.host, r.err = true, raw.URL.Host, nil
	if err := e.account.address(req, r); err != nil {
		return nil, err
	}
	runtime.SkipBodyDownload(req)
	resp, err := req.Next()
	r.answer.Reset()
	if err == nil {
		if n := resp.ContentLength; n > 0 && n < 1<<20 {
			r.answer.Grow(int(n) + bytes.MinRead) // otherwise ReadFrom would grow it at the end
		}
		_, err = r.answer.ReadFrom(resp.Body)
		resp.Body.Close()
	}
	if err != nil {
		if !refused || raw.Context().Err() == nil { // else the refusal says more than that the time is over
			r.status, r.head = 0, nil
		}
		r.err = err
		return emptyResponse(http.StatusOK, nil, raw), nil
	}
	r.status, r.head = resp.StatusCode, resp.Header
	if r.notHere() {
		// Nothing was written. The SDK looks for the new write region.
		return emptyResponse(r.status, r.head, raw), nil
	}
	return emptyResponse(http.StatusOK, nil, raw), nil
}

func emptyResponse(status int, head http.Header, raw *http.Request) *http.Response {
	if head == nil {
		head = http.Header{}
	}
	return &http.Response{StatusCode: status, Status: strconv.Itoa(status), Header: head, Body: http.NoBody, Request: raw, ProtoMajor: 1, ProtoMinor: 1}
}

// address rewrites the SDK's request as r.
func (a *account) address(req *policy.Request, r *request) error {
	raw := req.Raw()
	raw.Method = r.method
	path, escaped := "/"+a.link(), "/dbs/"+url.PathEscape(a.database)+"/colls/"+url.PathEscape(a.container)
	if r.kind != "colls" {
		path, escaped = path+"/"+r.kind, escaped+"/"+r.kind
	}
	if r.id != "" {
		path, escaped = path+"/"+r.id, escaped+"/"+url.PathEscape(r.id)
	}
	raw.URL.Path, raw.URL.RawPath = path, escaped
	for _, name := range []string{"Prefer", "x-ms-cosmos-is-batch-request", "x-ms-cosmos-batch-atomic", "x-ms-cosmos-batch-ordered"} {
		raw.Header.Del(name)
	}
	for _, h := range r.header {
		raw.Header.Set(h[0], h[1])
	}
	if r.body == nil {
		raw.Body, raw.GetBody, raw.ContentLength = nil, nil, 0
		raw.Header.Del("Content-Type")
		raw.Header.Del("Content-Length")
	} else if err := req.SetBody(streaming.NopCloser(bytes.NewReader(r.body)), "application/json"); err != nil {
		return err
	}
	if a.secret != nil && (r.kind != "docs" || r.id != "" || r.method != http.MethodPost) {
		a.sign(raw, r)
	}
	return nil
}

// sign replaces the SDK's signature, which is that of a batch. A key signs the
// method, the kind and the name of the resource, and the time, see
// learn.microsoft.com/rest/api/cosmos-db/access-control-on-cosmosdb-resources.
// A token of Entra ID is valid for every request.
func (a *account) sign(raw *http.Request, r *request) {
	link := a.link()
	if r.id != "" {
		link += "/docs/" + r.id
	}
	mac := hmac.New(sha256.New, a.secret)
	fmt.Fprintf(mac, "%s\n%s\n%s\n%s\n\n", strings.ToLower(r.method), r.kind, link, strings.ToLower(raw.Header.Get("x-ms-date")))
	signature := base64.StdEncoding.EncodeToString(mac.Sum(nil))
	raw.Header.Set("Authorization", url.QueryEscape("type=master&ver=1.0&sig="+signature))
}
