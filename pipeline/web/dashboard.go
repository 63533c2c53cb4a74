package web

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/health"
)

// Config holds what has a default. The zero value is ready to use.
type Config struct {
	// Token is what users sign in with. Default: none; then only requests of this
	// machine are answered. Set one if a proxy or a forwarded port on this machine
	// leads here, because then every request comes from this machine. Without a
	// token, requests with forwarding headers are refused, but not every proxy sets
	// them. Behind a proxy, failed attempts of one user slow down all users' sign-ins.
	Token string
	// CertFile and KeyFile are a certificate and its key in PEM; they are read
	// again when they change. Default: a self-signed certificate, kept under
	// Dir and replaced a month before it ends.
	CertFile, KeyFile string
	// Hosts are public host names of the dashboard, the one of its URL first.
	// Default: the address that it listens at.
	Hosts []string
	// GetCertificate returns the certificate for a handshake, for example from an
	// ACME client for Hosts, and Protocols are the ALPN protocols that it needs.
	// Default: CertFile.
	GetCertificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	Protocols      []string
	// Dir keeps certificates. Default: sluice-data/web.
	Dir string
	// Scaling is shown on a page of its own. Default: nil, and no such page.
	Scaling *Scaling
	// Log gets sign-ins, refused requests and actions. Default: none.
	Log *slog.Logger
}

func (cfg *Config) withDefaults() Config {
	var c Config
	if cfg != nil {
		c = *cfg
	}
	if c.Dir == "" {
		c.Dir = "sluice-data/web"
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// httpLog is where net/http logs errors that clients cause, at level debug.
func (cfg *Config) httpLog() *log.Logger {
	return slog.NewLogLogger(cfg.Log.Handler(), slog.LevelDebug)
}

// Dashboard is an http.Handler that shows pipelines. It is safe for concurrent
// use. What it shows is kept up to date while [Dashboard.Run] runs.
type Dashboard struct {
	cfg     Config
	auth    *auth
	shown   []*shown
	handler http.Handler
	page    *page

	running  atomic.Bool
	streams  chan struct{} // a token for each live stream
	followed chan struct{} // a token for each retry that is followed
	follow   chan *retry   // to Run
	toAudit  chan *shown   // likewise
	stopped  chan struct{} // closed when Run ends
}

// shown is a pipeline and what is known of it at present.
type shown struct {
	Pipeline
	view    view
	retries retries
	audits  audits
}

// New makes a dashboard of some pipelines, whose names must differ. A nil cfg
// takes every default.
func New(pipelines []Pipeline, cfg *Config) (*Dashboard, error) {
	d := &Dashboard{
		cfg: cfg.withDefaults(), streams: make(chan struct{}, maxStreams), stopped: make(chan struct{}),
		followed: make(chan struct{}, maxFollowed), follow: make(chan *retry, maxFollowed), toAudit: make(chan *shown, len(pipelines)),
	}
	var err error
	if d.auth, err = newAuth(d.cfg.Token); err != nil {
		return nil, err
	}
	d.cfg.Token = ""
	if d.page, err = newPage(); err != nil {
		return nil, err
	}
	if len(pipelines) == 0 {
		return nil, errors.New("dashboard of no pipelines: name at least one")
	}
	for _, p := range pipelines {
		if p.Name == "" || p.Source == nil || p.Leases == nil {
			return nil, fmt.Errorf("pipeline %q: the dashboard needs its name, source and leases", p.Name)
		}
		if d.find(p.Name) != nil {
			return nil, fmt.Errorf("pipeline %q: there are two of this name", p.Name)
		}
		d.shown = append(d.shown, newShown(p))
	}
	d.handler = d.routes()
	return d, nil
}

func (d *Dashboard) find(name string) *shown {
	for _, s := range d.shown {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// Run keeps what is shown up to date until ctx ends. It runs once.
func (d *Dashboard) Run(ctx context.Context) {
	if !d.running.Swap(true) {
		d.run(ctx)
	}
}

func (d *Dashboard) run(ctx context.Context) {
	var work sync.WaitGroup
	defer work.Wait()
	defer close(d.stopped)
	for _, s := range d.shown {
		work.Go(func() { s.refresh(ctx) })
		if !s.Watched && s.Checkpoints != nil {
			watcher := health.NewWatcher(s.Source, s.Leases, s.Checkpoints, nil)
			work.Go(func() { watcher.Run(ctx, warnEvery, func(l health.Report) { s.view.warn(l.Warnings) }) })
		}
	}
	for {
		select {
		case r := <-d.follow:
			work.Go(func() {
				r.run(ctx)
				<-d.followed
			})
		case s := <-d.toAudit:
			work.Go(func() { d.audit(ctx, s) })
		case <-ctx.Done():
			return
		}
	}
}

// warnEvery is how often the dashboard looks for warnings.
const warnEvery = 30 * time.Second

// Warn sets a pipeline's warnings: all that there are at present.
func (d *Dashboard) Warn(pipeline string, warnings []health.Warning) {
	if s := d.find(pipeline); s != nil {
		s.view.warn(warnings)
	}
}

// refresh reads the stores while a browser is connected, and makes a snapshot
// every second.
func (s *shown) refresh(ctx context.Context) {
	var work sync.WaitGroup
	defer work.Wait()
	work.Go(func() { s.view.refresh(ctx, &s.Pipeline) })
	tick := time.NewTicker(snapshotEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if s.view.watched() {
				s.view.render(s, time.Now())
			}
		case <-ctx.Done():
			return
		}
	}
}

func newShown(p Pipeline) *shown {
	s := &shown{Pipeline: p}
	s.view.init()
	return s
}

// ServeHTTP implements http.Handler.
func (d *Dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request) { d.handler.ServeHTTP(w, r) }

// routes are the pages and their API. Each request is bounded, requests from
// other sites are refused, and all paths except signing in need authentication.
func (d *Dashboard) routes() http.Handler {
	inside := http.NewServeMux()
	for _, path := range []string{"/{$}", "/partitions", "/dead-letters", "/audit"} {
		inside.HandleFunc("GET "+path, d.servePage)
	}
	if d.cfg.Scaling != nil {
		inside.HandleFunc("GET /autoscaling", d.servePage)
		inside.HandleFunc("GET /api/autoscaling", d.serveScaling)
	}
	inside.HandleFunc("GET /api/history", d.forPipeline(d.serveHistory))
	inside.HandleFunc("GET /api/live", d.forPipeline(d.serveLive))
	inside.HandleFunc("GET /api/dead-letters", d.forPipeline(d.serveDeadLetters))
	inside.HandleFunc("GET /api/dead-letters/{id}", d.forPipeline(d.serveDeadLetter))
	inside.HandleFunc("POST /api/dead-letters/retry", d.forPipeline(d.serveRetry))
	inside.HandleFunc("POST /api/dead-letters/discard", d.forPipeline(d.serveDiscard))
	inside.HandleFunc("GET /api/audit", d.forPipeline(d.serveAudit))
	inside.HandleFunc("POST /api/audit", d.forPipeline(d.serveAuditNow))
	inside.HandleFunc("POST /api/partitions/{id}/pause", d.forPipeline(d.servePause(true)))
	inside.HandleFunc("POST /api/partitions/{id}/resume", d.forPipeline(d.servePause(false)))

	outside := http.NewServeMux()
	outside.HandleFunc("GET /assets/", d.page.serveAsset)
	outside.HandleFunc("GET /sign-in", d.serveSignIn)
	outside.HandleFunc("POST /sign-in", d.signIn)
	outside.HandleFunc("POST /sign-out", d.signOut)
	outside.Handle("/", d.authenticated(inside))

	protection := http.NewCrossOriginProtection()
	protection.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fail(w, http.StatusForbidden, errors.New("the request came from another site"))
	}))
	return d.secured(protection.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c := connectionOf(r); c != nil {
			c.noteRequest()
		}
		r.Body = http.MaxBytesReader(w, r.Body, bodyBytes)
		outside.ServeHTTP(w, r)
	})))
}

// forPipeline finds the pipeline that a request names; a request that names none means
// the only one.
func (d *Dashboard) forPipeline(fn func(http.ResponseWriter, *http.Request, *shown)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s := d.shown[0]
		if name := r.URL.Query().Get("pipeline"); name != "" || len(d.shown) > 1 {
			if s = d.find(name); s == nil {
				fail(w, http.StatusNotFound, fmt.Errorf("there is no pipeline %q", cut(name, 100)))
				return
			}
		}
		fn(w, r, s)
	}
}

// servePause pauses or resumes a partition of this process.
func (d *Dashboard) servePause(pause bool) func(http.ResponseWriter, *http.Request, *shown) {
	return func(w http.ResponseWriter, r *http.Request, s *shown) {
		id := r.PathValue("id")
		switch {
		case s.Pausable == nil:
			fail(w, http.StatusConflict, errors.New("partitions of this pipeline can't be paused here"))
			return
		case pause && (s.Meter == nil || !s.Meter.state.Held(id)):
			fail(w, http.StatusConflict, fmt.Errorf("partition %q is not read by this process: pause it on the dashboard of its owner", cut(id, 100)))
			return
		}
		event := "dashboard: partition resumed"
		if pause {
			event = "dashboard: partition paused"
			s.Pausable.Pause(id)
		} else {
			s.Pausable.Resume(id)
		}
		d.cfg.Log.Info(event, "pipeline", s.Name, "partition", cut(id, 100), "from", remote(r))
		s.view.render(s, time.Now())
		answer(w, map[string]bool{"paused": pause})
	}
}

var _ driver.Observer = (*Meter)(nil)
