package web

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"
)

//go:embed assets
var assets embed.FS

// page is what the browser is given: HTML, styles, scripts. The path of the
// assets has their hash, so that they are kept by browsers until they change.
type page struct {
	prefix    string // of the assets' paths
	files     map[string][]byte
	templates *template.Template
}

func newPage() (*page, error) {
	p := &page{files: map[string][]byte{}}
	hash := sha256.New()
	err := fs.WalkDir(assets, "assets", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path.Ext(name) == ".html" {
			return err
		}
		data, err := assets.ReadFile(name)
		fmt.Fprintf(hash, "%s %d\n", name, len(data))
		hash.Write(data)
		p.files[strings.TrimPrefix(name, "assets/")] = data
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("dashboard's files: %w", err)
	}
	p.prefix = "/assets/" + hex.EncodeToString(hash.Sum(nil)[:8]) + "/"
	if p.templates, err = template.ParseFS(assets, "assets/*.html"); err != nil {
		return nil, fmt.Errorf("dashboard's pages: %w", err)
	}
	return p, nil
}

// types are those of the assets: a machine's own table may have others, which a
// browser that does not sniff refuses.
var types = map[string]string{
	".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml", ".txt": "text/plain; charset=utf-8",
}

func (p *page) serveAsset(w http.ResponseWriter, r *http.Request) {
	data, ok := p.files[strings.TrimPrefix(r.URL.Path, p.prefix)]
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", types[path.Ext(r.URL.Path)])
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	_, _ = w.Write(data)
}

// render writes a page.
func (p *page) render(w http.ResponseWriter, status int, name string, data any) {
	var b bytes.Buffer
	if err := p.templates.ExecuteTemplate(&b, name, data); err != nil {
		fail(w, http.StatusInternalServerError, fmt.Errorf("page: %w", err))
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = b.WriteTo(w)
}

// policy lets a page load files of this server only, and nothing inline.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; manifest-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// secured sets the headers that isolate a page from other sites.
func (d *Dashboard) secured(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=()")
		h.Set("Cache-Control", "no-store")
		if d.enforcesHTTPS(r) {
			h.Set("Strict-Transport-Security", "max-age=31536000")
		}
		next.ServeHTTP(w, r)
	})
}

// enforcesHTTPS reports whether browsers are told to use only HTTPS for the host of a request
// (HSTS). They then do so for all ports of the host, for a year. So this is not for a host that may
// serve something else: for a public name of Config.Hosts, or for a name with a given certificate
// at the port of HTTPS, but for no other port and not for this machine.
func (d *Dashboard) enforcesHTTPS(r *http.Request) bool {
	if len(d.cfg.Hosts) > 0 {
		return true
	}
	if d.cfg.CertFile == "" && d.cfg.GetCertificate == nil {
		return false
	}
	name := strings.TrimSuffix(strings.ToLower(strings.TrimSuffix(r.Host, ":443")), ".")
	return strings.Contains(name, ".") && !strings.Contains(name, ":") && !strings.HasSuffix(name, ".localhost") && net.ParseIP(name) == nil
}

// authenticated lets only authenticated requests pass; a browser is sent to the
// sign-in page.
func (d *Dashboard) authenticated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := d.auth.authenticate(r)
		switch {
		case err == nil:
			if c := connectionOf(r); c != nil {
				c.noteAuthenticated()
			}
			next.ServeHTTP(w, r)
		case errors.Is(err, errSignIn) && r.Method == http.MethodGet && !strings.HasPrefix(r.URL.Path, "/api/"):
			http.Redirect(w, r, "/sign-in?to="+template.URLQueryEscaper(r.URL.Path), http.StatusSeeOther)
		default:
			d.refused(r, err)
			fail(w, refusal(w, err), err)
		}
	})
}

// refused logs a refused request: a wrong token as a warning, anything else at
// level debug. The login limiter bounds the warnings.
func (d *Dashboard) refused(r *http.Request, err error) {
	level := slog.LevelDebug
	if errors.Is(err, errWrongToken) {
		level = slog.LevelWarn
	}
	d.cfg.Log.Log(r.Context(), level, "dashboard: refused", "cause", err, "from", remote(r))
}

// refusal returns the HTTP status for an error of auth.
func refusal(w http.ResponseWriter, err error) int {
	switch {
	case errors.Is(err, errTooManyLogins):
		w.Header().Set("Retry-After", strconv.Itoa(int(loginEvery/time.Second)))
		return http.StatusTooManyRequests
	case errors.Is(err, errNotLocal):
		return http.StatusForbidden
	}
	// Not Basic: browsers would open their own dialog for a name and a password.
	w.Header().Set("WWW-Authenticate", `Bearer realm="Sluice"`)
	return http.StatusUnauthorized
}

func (d *Dashboard) servePage(w http.ResponseWriter, r *http.Request) {
	type pipeline struct {
		Name, Group, Unaudited                      string
		Charts, Letters, Pausable, Stays, Auditable bool
	}
	data := struct {
		Assets    string
		Pipelines []pipeline
		Locked    bool
		Scaling   bool
	}{Assets: d.page.prefix, Locked: d.auth.required, Scaling: d.cfg.Scaling != nil}
	for _, s := range d.shown {
		data.Pipelines = append(data.Pipelines, pipeline{
			Name: s.Name, Group: s.Group.String(), Charts: s.Meter != nil, Letters: s.DeadLetters != nil, Pausable: s.Pausable != nil, Stays: s.Checkpoints != nil,
			Auditable: s.Audit != nil, Unaudited: s.Unaudited,
		})
	}
	d.page.render(w, http.StatusOK, "index.html", data)
}

type signInPage struct{ Assets, To, Error string }

func (d *Dashboard) serveSignIn(w http.ResponseWriter, r *http.Request) {
	to := localPath(r.URL.Query().Get("to"))
	if !d.auth.required || d.auth.authenticate(r) == nil {
		http.Redirect(w, r, to, http.StatusSeeOther)
		return
	}
	d.page.render(w, http.StatusOK, "signin.html", signInPage{Assets: d.page.prefix, To: to})
}

// localPath returns the path if it is one of this site's pages, else the overview's.
func localPath(to string) string {
	if to == "/partitions" || to == "/dead-letters" || to == "/audit" || to == "/autoscaling" {
		return to
	}
	return "/"
}

func (d *Dashboard) signIn(w http.ResponseWriter, r *http.Request) {
	to := localPath(r.PostFormValue("to"))
	if d.auth.required {
		err := d.auth.login(strings.TrimSpace(r.PostFormValue("token")), remote(r))
		if err != nil {
			d.refused(r, err)
			text := err.Error()
			d.page.render(w, refusal(w, err), "signin.html", signInPage{Assets: d.page.prefix, To: to, Error: strings.ToUpper(text[:1]) + text[1:] + "."})
			return
		}
		d.cfg.Log.Info("dashboard: signed in", "from", remote(r))
		http.SetCookie(w, d.auth.newSession())
	}
	http.Redirect(w, r, to, http.StatusSeeOther)
}

func (d *Dashboard) signOut(w http.ResponseWriter, r *http.Request) {
	if c, err := r.Cookie(cookieName); err == nil {
		http.SetCookie(w, d.auth.endSession(c.Value))
	}
	http.Redirect(w, r, "/sign-in", http.StatusSeeOther)
}

// answer writes JSON.
func answer(w http.ResponseWriter, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		fail(w, http.StatusInternalServerError, fmt.Errorf("answer: %w", err))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(text)
}

// fail answers with an error.
func fail(w http.ResponseWriter, status int, err error) {
	text, _ := json.Marshal(map[string]string{"error": cut(err.Error(), 1000)}) // strings always can be
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(text)
}
