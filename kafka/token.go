package kafka

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

	"github.com/sluice-go/sluice/internal/finalanswer"
)

// maxToken bounds the size of a token, and of a server's reply.
const maxToken = 64 << 10

// TokenFile returns a function for [OAuthBearer] that reads the token from a file, which another
// program renews. The file is read for each new connection.
func TokenFile(path string) func(context.Context) (string, error) {
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

// ClientCredentials gets tokens from an OAuth 2.0 authorization server, by the grant
// client_credentials (RFC 6749, section 4.4). Pass its method Token to [OAuthBearer]. It is safe
// for concurrent use, and must not be copied or changed after the first use.
type ClientCredentials struct {
	URL    string // of the server's token endpoint, https://…
	ID     string
	Secret string
	Scope  string // empty: none is asked for

	mu      sync.Mutex // held over a request: others wait for its token
	value   string
	expires time.Time
}

// Format writes the server for every verb, so that nothing prints the secret.
func (c *ClientCredentials) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, c.URL) }

// tokenTimeout bounds a request to an authorization server.
const tokenTimeout = 15 * time.Second

var tokenClient = &http.Client{Transport: finalanswer.Transport(http.DefaultTransport)}

// fetch asks for a token, and returns it with the time for which it is valid.
func (c *ClientCredentials) fetch(ctx context.Context) (token string, valid time.Duration, err error) {
	form := url.Values{"grant_type": {"client_credentials"}}
	if c.Scope != "" {
		form.Set("scope", c.Scope)
	}
	ctx, cancel := context.WithTimeout(ctx, tokenTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL, strings.NewReader(form.Encode()))
	if err != nil {
		return "", 0, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Accept", "application/json")
	req.SetBasicAuth(url.QueryEscape(c.ID), url.QueryEscape(c.Secret)) // RFC 6749, 2.3.1
	resp, err := tokenClient.Do(req)
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
		return "", 0, fmt.Errorf("%s answered %s %s %s: check the client's id and secret, and the scope", c.URL, resp.Status, reply.Error, reply.Reason)
	case parsed != nil:
		return "", 0, fmt.Errorf("%s: reply is not JSON: %w", c.URL, parsed)
	case reply.Token == "":
		return "", 0, errors.New(c.URL + ": reply has no access_token")
	}
	return reply.Token, time.Duration(reply.Expires * float64(time.Second)), nil
}

// Token returns a token. It keeps one until a fifth of its time is left, and then asks for the
// next.
func (c *ClientCredentials) Token(ctx context.Context) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Now().Before(c.expires) {
		return c.value, nil
	}
	asked := time.Now()
	token, valid, err := c.fetch(ctx)
	if err != nil {
		return "", fmt.Errorf("token: %w", err)
	}
	const spare = 5 // a fifth of the time
	c.value, c.expires = token, asked.Add(valid-valid/spare)
	return token, nil
}
