package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/sluice-go/sluice/internal/strictyaml"
)

// maxToken bounds the size of a token, and of a server's reply.
const maxToken = 64 << 10

// tokenFile returns tokens from a file, which another program renews.
func tokenFile(path string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) {
		f, err := os.Open(path)
		if err != nil {
			return "", fmt.Errorf("token: %w", err)
		}
		defer f.Close()
		text, err := io.ReadAll(io.LimitReader(f, maxToken))
		if err != nil {
			return "", fmt.Errorf("token: %w", err)
		}
		token := strings.TrimSpace(string(text))
		if token == "" {
			return "", fmt.Errorf("token: %s is empty", path)
		}
		return token, nil
	}
}

// tokenServer is an OAuth 2.0 authorization server that issues tokens for client credentials.
type tokenServer struct{ url, id, secret, scope string }

func (s *tokenServer) readURL(n strictyaml.Node) {
	var text string
	if !n.Text(&text) {
		return
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil {
		n.Fail("%s: write a URL, https://…", n.Shown())
		return
	}
	s.url = text
}

// tokenTimeout bounds a request to an authorization server.
const tokenTimeout = 15 * time.Second

// fetch asks for a token, and returns it with the time for which it is valid.
func (s *tokenServer) fetch(ctx context.Context) (token string, valid time.Duration, err error) {
	form := url.Values{"grant_type": {"client_credentials"}}
	if s.scope != "" {
		form.Set("scope", s.scope)
	}
	ctx, cancel := context.WithTimeout(ctx, tokenTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, strings.NewReader(form.Encode()))
	if err != nil {
		return "", 0, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Accept", "application/json")
	req.SetBasicAuth(url.QueryEscape(s.id), url.QueryEscape(s.secret)) // RFC 6749, 2.3.1
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", 0, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxToken))
	if err != nil {
		return "", 0, err
	}
	var reply struct {
		Token   string  `json:"access_token"`
		Expires float64 `json:"expires_in"` // seconds
		Error   string  `json:"error"`
		Reason  string  `json:"error_description"`
	}
	parsed := json.Unmarshal(body, &reply)
	switch {
	case resp.StatusCode != http.StatusOK:
		return "", 0, fmt.Errorf("%s answered %s %s %s: check client_id, client_secret and scope", s.url, resp.Status, reply.Error, reply.Reason)
	case parsed != nil:
		return "", 0, fmt.Errorf("%s: reply is not JSON: %w", s.url, parsed)
	case reply.Token == "":
		return "", 0, errors.New(s.url + ": reply has no access_token")
	}
	return reply.Token, time.Duration(reply.Expires * float64(time.Second)), nil
}

// cachedToken keeps a server's token until shortly before it expires.
type cachedToken struct {
	server tokenServer

	mu    sync.Mutex // held over a request: others wait for its token
	value string
	until time.Time
}

func (c *cachedToken) token(ctx context.Context) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Now().Before(c.until) {
		return c.value, nil
	}
	asked := time.Now()
	token, valid, err := c.server.fetch(ctx)
	if err != nil {
		return "", fmt.Errorf("token: %w", err)
	}
	const spare = 5 // a fifth of the time
	c.value, c.until = token, asked.Add(valid-valid/spare)
	return token, nil
}
