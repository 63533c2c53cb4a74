package blobstore

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
)

// development is the account of every Azurite; its key is public.
// https://learn.microsoft.com/azure/storage/common/storage-use-azurite
const development = "DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;" +
	"AccountKey=Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==;" +
	"BlobEndpoint=http://127.0.0.1:10000/devstoreaccount1"

// tryTimeout bounds one try of a request. A connection that falls silent costs one try, and a
// second one still fits into the third of a lease that the engine allows for a request.
const tryTimeout = 4 * time.Second

// Connect makes a client of a container, which is named by its URL,
// https://account.blob.core.windows.net/container, or by its name alone where
// cfg has a connection string. The credentials are the connection string's,
// cfg.Credential, or a shared access signature in the URL (?sv=…&sig=…), which
// must allow to read, add, create, write, delete and list. Connect sends nothing.
// Errors never contain a key or a signature.
func Connect(where string, cfg *Config) (*container.Client, error) {
	if cfg == nil {
		cfg = &Config{}
	}
	opts := &container.ClientOptions{ClientOptions: cfg.Client}
	retry := &opts.Retry
	if retry.MaxRetries == 0 && retry.TryTimeout == 0 && retry.RetryDelay == 0 {
		retry.MaxRetries, retry.RetryDelay, retry.MaxRetryDelay, retry.TryTimeout = 3, 200*time.Millisecond, 2*time.Second, tryTimeout
	}
	u, err := parse(where)
	if err != nil {
		return nil, err
	}
	switch {
	case cfg.ConnectionString != "":
		return connectByString(u, cfg.ConnectionString, opts)
	case u.Host == "":
		return nil, fmt.Errorf("container %q: the name of a container needs a connection string beside it, or write its URL: https://ACCOUNT.blob.core.windows.net/CONTAINER", u.Path)
	case u.Query().Get("sig") != "":
		return made(container.NewClientWithNoCredential(u.String(), opts))
	case cfg.Credential == nil:
		return nil, fmt.Errorf("container %s: no credentials: give a connection string, a shared access signature in the URL, or a credential of Entra ID", shown(u))
	case u.Scheme != "https":
		return nil, fmt.Errorf("container %s: tokens of Entra ID are sent over https only", shown(u))
	}
	return made(container.NewClient(u.String(), cfg.Credential, opts))
}

// parse reads a container's URL or name.
func parse(where string) (*url.URL, error) {
	const form = "write https://ACCOUNT.blob.core.windows.net/CONTAINER"
	if !strings.Contains(where, "://") {
		if where == "" || strings.ContainsAny(where, "/?&;=") {
			return nil, errors.New("the container can be read neither as a URL nor as a name: " + form)
		}
		return &url.URL{Path: where}, nil
	}
	u, err := url.Parse(where) // its error contains the text, which may hold a signature
	if err != nil || u.Host == "" || u.User != nil || u.Scheme != "https" && u.Scheme != "http" {
		return nil, errors.New("the container's URL cannot be read: " + form)
	}
	u.Path, u.RawPath, u.Fragment = strings.TrimRight(u.Path, "/"), "", ""
	if u.Path == "" {
		return nil, fmt.Errorf("the URL %s names no container: %s", shown(u), form)
	}
	return u, nil
}

// connectByString takes the credentials from a connection string. A URL must
// be of the same account.
func connectByString(u *url.URL, connection string, opts *container.ClientOptions) (*container.Client, error) {
	if strings.EqualFold(strings.TrimSpace(strings.TrimRight(connection, "; ")), "UseDevelopmentStorage=true") {
		connection = development
	}
	name := u.Path[strings.LastIndexByte(u.Path, '/')+1:]
	c, err := container.NewClientFromConnectionString(connection, name, opts)
	if err != nil { // which may contain a part of the connection string
		return nil, errors.New("the storage account's connection string cannot be read: copy it from the portal, \"Access keys\": DefaultEndpointsProtocol=https;AccountName=…;AccountKey=…;EndpointSuffix=core.windows.net")
	}
	if has, err := url.Parse(c.URL()); err != nil || u.Host != "" && (has.Host != u.Host || has.Path != u.Path) {
		return nil, fmt.Errorf("the connection string is of %s, and not of the account in %s", place(c), shown(u))
	}
	return c, nil
}

// made replaces an error that may contain the URL.
func made(c *container.Client, err error) (*container.Client, error) {
	if err != nil {
		return nil, errors.New("the client of the container cannot be made: check its URL")
	}
	return c, nil
}

// place is the container's URL without a signature.
func place(c *container.Client) string {
	u, err := url.Parse(c.URL())
	if err != nil {
		return "of the storage account"
	}
	return shown(u)
}

func shown(u *url.URL) string {
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}
