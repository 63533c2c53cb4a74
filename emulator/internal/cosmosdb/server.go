package cosmosdb

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	maxHeader      = 64 << 10
	maxBody        = 4 << 20 // a document or batch has at most 2 MB
	maxBatchBody   = 2<<20 + 256<<10
	headerTimeout  = 30 * time.Second
	idleTimeout    = 5 * time.Minute
	requestTimeout = 5 * time.Minute // to read a request
)

// Server is the HTTP server of an account's region.
type Server struct {
	account *Account
	region  int
	http    *http.Server
	stop    context.CancelFunc
	serving sync.WaitGroup
}

// Serve serves the account to clients that connect to l, until Close. The account's
// address in responses is the Host header of the request.
func (a *Account) Serve(l net.Listener) *Server {
	a.mu.Lock()
	a.first = l.Addr()
	a.mu.Unlock()
	return a.serveRegion(l, 0)
}

func (a *Account) serveRegion(l net.Listener, region int) *Server {
	ctx, stop := context.WithCancel(context.Background())
	s := &Server{account: a, region: region, stop: stop}
	handler := http.Handler(http.HandlerFunc(s.serve))
	if a.cfg.Wrap != nil {
		handler = a.cfg.Wrap(handler)
	}
	s.http = &http.Server{
		Handler: handler, ReadHeaderTimeout: headerTimeout, ReadTimeout: requestTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		ErrorLog:    slog.NewLogLogger(a.log.Handler(), slog.LevelDebug),
		BaseContext: func(net.Listener) context.Context { return ctx },
		ConnState: func(_ net.Conn, state http.ConnState) {
			switch state {
			case http.StateNew:
				a.stats.connections.Add(1)
				a.stats.open.Add(1)
			case http.StateClosed, http.StateHijacked:
				a.stats.open.Add(-1)
			}
		},
	}
	s.serving.Go(func() {
		if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			a.log.Error("Cosmos DB account stopped accepting connections", "error", err)
		}
	})
	return s
}

// Close waits up to a second for requests in progress, and disconnects the clients.
func (s *Server) Close() error {
	s.stop()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = s.http.Close()
	}
	s.serving.Wait()
	return err
}

// call is a request in progress.
type call struct {
	account    *Account
	region     int // where the request arrived
	w          http.ResponseWriter
	r          *http.Request
	path       []string   // unescaped, with names instead of resource ids
	bearer     bool       // the client has signed in with an access token
	principal  *Principal // whose token that is; nil if the account doesn't know
	byRID      bool       // the client has addressed the resource by resource ids
	charge     float64
	dropAnswer bool // close the connection instead of sending the response
	buffers    *buffers
}

// buffers are the buffers of a call, reused by later calls.
type buffers struct {
	in, out []byte
	doc     document
	batch   batch
}

var bufferPool = sync.Pool{New: func() any { return new(buffers) }}

// maxPooledBuffer is the maximum size of a buffer that is reused.
const maxPooledBuffer = 8 << 20

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	if refuse := s.account.cfg.Refuse; refuse != nil {
		if err := refuse(r); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
	}
	b := bufferPool.Get().(*buffers)
	c := &call{account: s.account, region: s.region, w: w, r: r, buffers: b}
	s.account.stats.requests.Add(1)
	if f := c.serve(); f != nil {
		c.answerFailure(f)
	}
	if cap(b.in) <= maxPooledBuffer && cap(b.out) <= maxPooledBuffer {
		bufferPool.Put(b)
	}
}

// serve parses a request's path, authorizes and dispatches it.
func (c *call) serve() *failure {
	for part := range strings.SplitSeq(strings.Trim(c.r.URL.EscapedPath(), "/"), "/") {
		plain, err := url.PathUnescape(part)
		if err != nil || len(c.path) > 8 {
			return badRequest("The request's path is malformed.")
		}
		if plain != "" {
			c.path = append(c.path, plain)
		}
	}
	kind, link := c.resource()
	f := c.authorize(kind, link, c.useNames())
	if f == nil {
		f = c.checkRights()
	}
	if f == nil {
		f = c.checkRole()
	}
	if f != nil {
		c.account.stats.unauthorized.Add(1)
		return f
	}
	if f := c.checkRegion(); f != nil {
		return f
	}
	return c.dispatch()
}

// dispatch serves an authorized request.
func (c *call) dispatch() *failure {
	p := c.path
	if len(p) >= 5 && p[0] == "dbs" && p[2] == "colls" {
		return c.inContainer()
	}
	if f := c.inject(OnMetadata, "", ""); f != nil {
		return f
	}
	c.charge = chargeMetadata
	switch {
	case len(p) == 0 && c.r.Method == http.MethodGet:
		return c.readAccount()
	case len(p) == 1 && p[0] == "dbs":
		return c.allDatabases()
	case len(p) == 2 && p[0] == "dbs":
		return c.oneDatabase()
	case len(p) >= 3 && p[0] == "dbs" && p[2] == "colls":
		db := c.account.database(p[1])
		if db == nil {
			return failNotFound()
		}
		if len(p) == 3 {
			return c.allContainers(db)
		}
		return c.oneContainer(db)
	case len(p) == 1 && p[0] == "offers":
		return c.allOffers()
	case len(p) == 2 && p[0] == "offers":
		return c.oneOffer()
	}
	return c.unsupported()
}

func (c *call) unsupported() *failure {
	return badRequest("The emulator doesn't support " + c.r.Method + " of " + strings.Join(c.path, "/") + ".")
}

// resource returns the resource type and link that the signature covers. For a list of
// resources, the link is the parent's.
func (c *call) resource() (kind, link string) {
	p := c.path
	switch {
	case len(p) == 0:
		return "", ""
	case len(p) == 6 && p[4] == "operations":
		return "partitionkey", strings.Join(p[:4], "/")
	case len(p)%2 == 1:
		return p[len(p)-1], strings.Join(p[:len(p)-1], "/")
	case p[0] == "offers":
		return p[0], strings.ToLower(p[1]) // addressed by resource id
	default:
		return p[len(p)-2], strings.Join(p, "/")
	}
}

// inContainer serves requests below /dbs/…/colls/….
func (c *call) inContainer() *failure {
	p := c.path
	owner, err := c.account.Container(p[1], p[3])
	on := c.kind()
	rangeID := c.rangeID()
	if f := c.inject(on, p[1]+"/"+p[3], rangeID); f != nil {
		return f
	}
	if err != nil {
		f := failNotFound()
		f.substatus = 1003 // owner resource not found
		return f
	}
	owner.settle()
	if f := c.checkIntended(owner); f != nil {
		return f
	}
	switch {
	case len(p) == 5 && p[4] == "pkranges" && c.r.Method == http.MethodGet:
		return c.readRanges(owner)
	case len(p) == 5 && p[4] == "docs":
		switch on {
		case OnQuery:
			return c.query(owner)
		case OnBatch:
			return c.batch(owner)
		}
		if c.r.Method == http.MethodPost {
			return c.writeDocument(owner, verbCreate)
		}
	case len(p) == 6 && p[4] == "docs":
		if f := c.useDocumentID(owner); f != nil {
			return f
		}
		switch c.r.Method {
		case http.MethodGet:
			return c.readDocument(owner)
		case http.MethodPut:
			return c.writeDocument(owner, verbReplace)
		case http.MethodDelete:
			return c.deleteDocument(owner)
		case http.MethodPatch:
			return c.patchDocument(owner)
		}
	}
	return c.unsupported()
}

// kind returns the kind of a request below a container.
func (c *call) kind() Request {
	switch {
	case c.path[4] == "pkranges":
		return OnRanges
	case len(c.path) == 5 && c.isTrue("X-Ms-Cosmos-Is-Batch-Request"):
		return OnBatch
	case len(c.path) == 5 && (c.r.Method == http.MethodGet || c.isQuery() || c.isTrue("X-Ms-Cosmos-Is-Query-Plan-Request")):
		return OnQuery
	case c.r.Method == http.MethodGet:
		return OnRead
	default:
		return OnWrite
	}
}

func (c *call) isTrue(header string) bool { return strings.EqualFold(c.r.Header.Get(header), "true") }

// rangeID returns the id of the partition key range in the request. Some clients put
// the container's resource id before it.
func (c *call) rangeID() string {
	id := c.r.Header.Get("X-Ms-Documentdb-Partitionkeyrangeid")
	return id[strings.LastIndexByte(id, ',')+1:]
}

func (c *call) isQuery() bool {
	return c.r.Method == http.MethodPost &&
		(c.isTrue("X-Ms-Documentdb-Query") || c.isTrue("X-Ms-Documentdb-Isquery") || strings.HasPrefix(c.r.Header.Get("Content-Type"), "application/query+json"))
}

// inject injects the fault that matches the request, if there is one.
func (c *call) inject(on Request, container, rangeID string) *failure {
	fault, ok := c.account.faults.next(on, container, rangeID, false)
	if !ok {
		return nil
	}
	if fault.Delay > 0 {
		wait := time.NewTimer(fault.Delay)
		defer wait.Stop()
		select {
		case <-wait.C:
		case <-c.r.Context().Done():
		}
	}
	switch fault.Kind {
	case FaultStatus:
		return fault.failure()
	case FaultDrop:
		c.dropConnection()
		return errDropped
	case FaultLoseAnswer:
		c.dropAnswer = true
	}
	return nil
}

// errDropped means that the connection is closed and no response is sent.
var errDropped = &failure{}

// dropConnection closes the connection at once, as a failing network would.
func (c *call) dropConnection() {
	conn, _, err := http.NewResponseController(c.w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

// body reads the request's body into the call's buffer.
func (c *call) body(limit int64) ([]byte, *failure) {
	tooLarge := fail(http.StatusRequestEntityTooLarge, 0, "Request size is too large")
	if c.r.ContentLength > limit {
		return nil, tooLarge
	}
	b := c.buffers.in[:0]
	if n := int(c.r.ContentLength); n > cap(b) {
		b = make([]byte, 0, n+n/4)
	}
	for {
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
		n, err := c.r.Body.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		c.buffers.in = b
		switch {
		case int64(len(b)) > limit:
			return nil, tooLarge
		case errors.Is(err, io.EOF):
			return b, nil
		case err != nil:
			return nil, badRequest("The request's body ended early.")
		}
	}
}

// answer sends a response with a JSON body. The names of Azure's own headers are in lower case,
// as on Azure.
func (c *call) answer(status int, body []byte) *failure {
	if c.dropAnswer {
		c.dropConnection()
		return nil
	}
	h := c.w.Header()
	h["x-ms-request-charge"] = []string{strconv.FormatFloat(round(c.charge), 'f', -1, 64)}
	h["x-ms-activity-id"] = []string{newActivityID()}
	h["x-ms-gatewayversion"] = gatewayVersion
	if status != http.StatusNoContent && status != http.StatusNotModified {
		h["Content-Length"] = []string{strconv.Itoa(len(body))}
		h["Content-Type"] = contentType
	}
	c.w.WriteHeader(status)
	_, _ = c.w.Write(body) // an error is the client's
	return nil
}

var (
	contentType    = []string{"application/json"}
	gatewayVersion = []string{"version=2.0.0"}
)

// newActivityID returns the id of a response, a random UUID.
func newActivityID() string {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:], rand.Uint64())
	binary.BigEndian.PutUint64(b[8:], rand.Uint64())
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	var text [36]byte
	hex.Encode(text[:], b[:4])
	for i, at := range []int{8, 13, 18, 23} {
		text[at] = '-'
		hex.Encode(text[at+1:], b[4+2*i:][:[]int{2, 2, 2, 6}[i]])
	}
	return string(text[:])
}

// answerFailure sends an error response.
func (c *call) answerFailure(f *failure) {
	if f == errDropped {
		return
	}
	h := c.w.Header()
	if f.substatus != 0 {
		h["x-ms-substatus"] = []string{strconv.Itoa(f.substatus)}
	}
	if f.retryAfter > 0 {
		h["x-ms-retry-after-ms"] = []string{strconv.FormatInt(f.retryAfter.Milliseconds(), 10)}
	}
	if f.status == http.StatusTooManyRequests {
		c.account.stats.throttled.Add(1)
	}
	c.charge = f.charge
	b := append(c.buffers.out[:0], `{"code":"`...)
	b = append(append(b, codeName(f.status)...), `","message":`...)
	b = appendQuoted(b, f.message)
	c.buffers.out = append(b, '}')
	_ = c.answer(f.status, c.buffers.out)
}
