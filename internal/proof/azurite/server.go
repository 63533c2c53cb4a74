package azurite

import (
	"bufio"
	"cmp"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"
)

// startWithin is how long a server may take to start.
const startWithin = 3 * time.Minute

// The account that every Azurite has, and its key: published, no secret.
// https://learn.microsoft.com/azure/storage/common/storage-use-azurite
const (
	Account = "devstoreaccount1"
	Key     = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)

// ErrMissing says that Azurite is not installed.
var ErrMissing = errors.New("there is no Azurite here: run scripts/install-azurite")

// Config holds what has a default. The zero value is ready to use.
type Config struct {
	// TLS makes the server speak HTTPS, with a certificate of its own, and
	// take tokens besides keys.
	TLS bool
	// All makes it have queues and tables besides blobs.
	All bool
}

// Server is a private Azurite. It is safe for concurrent use.
type Server struct {
	url            string         // of the blob service, without the account
	queues, tables string         // of the others, if there are any
	roots          *x509.CertPool // with TLS
	certificate    []byte         // the same, in PEM

	dir   string
	cmd   *exec.Cmd
	leash io.Closer
	done  chan struct{} // closed once it has ended and its output was read

	mu   sync.Mutex
	tail []string // the last lines of its output
}

// tether ends the server when this process ends, since its standard input is a pipe
// from it, and removes the server's directory.
const tether = `data:text/javascript,import{rmSync}from"node:fs";` +
	`const dir=process.cwd();process.on("exit",()=>rmSync(dir,{recursive:true,force:true}));` +
	`process.stdin.resume().on("close",()=>process.exit())`

// Start starts a server. A nil cfg takes every default.
func Start(cfg *Config) (*Server, error) {
	if cfg == nil {
		cfg = &Config{}
	}
	program, err := program(cfg.All)
	if err != nil {
		return nil, err
	}
	s := &Server{done: make(chan struct{})}
	if s.dir, err = os.MkdirTemp("", "sluice-azurite-"); err != nil {
		return nil, fmt.Errorf("make Azurite's directory: %w", err)
	}
	args := []string{
		"--import", tether, program,
		"--inMemoryPersistence", "--disableTelemetry", "--skipApiVersionCheck",
		"--blobHost", "127.0.0.1", "--blobPort", "0",
	}
	if cfg.All {
		args = append(args, "--queueHost", "127.0.0.1", "--queuePort", "0", "--tableHost", "127.0.0.1", "--tablePort", "0")
	}
	if cfg.TLS {
		more, err := s.certify()
		if err != nil {
			return nil, errors.Join(err, os.RemoveAll(s.dir))
		}
		args = append(args, more...)
	}
	if err := s.run(args, cfg.All); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// program finds Azurite in the .dev of the module that the tests run in.
func program(all bool) (string, error) {
	name := "blob/main.js"
	if all {
		name = "azurite.js"
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		found := filepath.Join(dir, ".dev/azurite/node_modules/azurite/dist/src", name)
		if _, err := os.Stat(found); err == nil {
			return found, nil
		}
		if dir == filepath.Dir(dir) {
			return "", ErrMissing
		}
	}
}

// run starts the program and waits until it listens.
func (s *Server) run(args []string, all bool) error {
	s.cmd = exec.Command("node", args...)
	s.cmd.Dir = s.dir
	leash, err := s.cmd.StdinPipe()
	if err != nil {
		return err
	}
	s.leash = leash
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	s.cmd.Stderr = s.cmd.Stdout
	if err := s.cmd.Start(); err != nil {
		close(s.done)
		return fmt.Errorf("start Azurite: %w", err)
	}
	services := 1
	if all {
		services = 3
	}
	listens := make(chan [2]string, services)
	go func() {
		defer close(s.done)
		s.read(out, listens)
		_ = s.cmd.Wait() // it is ended by force
	}()
	timer := time.NewTimer(startWithin)
	defer timer.Stop()
	for range services {
		if err := s.await(listens, timer.C); err != nil {
			return err
		}
	}
	return nil
}

// await records the address of one of the services.
func (s *Server) await(listens <-chan [2]string, late <-chan time.Time) error {
	select {
	case l := <-listens:
		switch l[0] {
		case "Queue":
			s.queues = l[1]
		case "Table":
			s.tables = l[1]
		default:
			s.url = l[1]
		}
		return nil
	case <-s.done:
		return fmt.Errorf("wait for Azurite, which has ended: %s", s.Log())
	case <-late:
		return fmt.Errorf("wait for Azurite, which does not listen after %v: %s", startWithin, s.Log())
	}
}

// listening matches the line that each service prints, in one of two forms.
var listening = regexp.MustCompile(`^Azurite (\w+) service (?:successfully listens on|is successfully listening at) (\S+)`)

// read reads the output of the server, and sends the addresses in it to listens.
func (s *Server) read(out io.Reader, listens chan<- [2]string) {
	const kept = 50
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if m := listening.FindStringSubmatch(lines.Text()); m != nil {
			listens <- [2]string{m[1], m[2]}
		}
		s.mu.Lock()
		s.tail = append(s.tail, lines.Text())
		s.tail = s.tail[max(len(s.tail)-kept, 0):]
		s.mu.Unlock()
	}
}

// Log is the end of what the server has printed: its requests, a line each.
func (s *Server) Log() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.tail, "\n")
}

// URL is the address of the account's blob service.
func (s *Server) URL() string { return s.url + "/" + Account }

// ConnectionString is that of the account, with its key.
func (s *Server) ConnectionString() string {
	u, err := url.Parse(s.url)
	if err != nil {
		return ""
	}
	text := fmt.Sprintf("DefaultEndpointsProtocol=%s;AccountName=%s;AccountKey=%s;BlobEndpoint=%s;", u.Scheme, Account, Key, s.URL())
	if s.queues != "" {
		text += fmt.Sprintf("QueueEndpoint=%s/%s;TableEndpoint=%s/%s;", s.queues, Account, s.tables, Account)
	}
	return text
}

// Close ends the server.
func (s *Server) Close() error {
	if s.leash != nil {
		_ = s.leash.Close()
		<-s.done
	}
	return os.RemoveAll(s.dir)
}

// Token makes a token of Entra ID that the server accepts over TLS: the server checks
// its claims, not its signature.
func Token(expires time.Time, audience string) string {
	part := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	now := time.Now().Add(-time.Minute).Unix()
	claims := fmt.Sprintf(`{"aud":%q,"iss":"https://sts.windows.net/ab1f708d-50f6-404c-a006-d71b2ac7a606/","iat":%d,"nbf":%d,"exp":%d}`,
		cmp.Or(audience, "https://storage.azure.com"), now, now, expires.Unix())
	return part(`{"alg":"RS256","typ":"JWT"}`) + "." + part(claims) + "." + part("signature")
}
