package check

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
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

// CosmosAddress is how to connect to a container of Cosmos DB.
type CosmosAddress struct {
	Endpoint   string
	Key        string // or
	Credential azcore.TokenCredential
	Database   string
	Container  string
	Client     *http.Client // default: one of its own
}

// cosmosClient sends requests as Sluice's sink does, and shows the answers as they are.
type cosmosClient struct {
	CosmosAddress
	base   *url.URL
	secret []byte
}

// apiVersion is that of the SDK for Go.
const apiVersion = "2020-11-05"

// maxCosmosAnswer bounds the length of an answer.
const maxCosmosAnswer = 16 << 20

func dialCosmos(a CosmosAddress) (*cosmosClient, error) {
	u, err := url.Parse(a.Endpoint)
	if err != nil || u.Host == "" || u.User != nil || u.Scheme != "https" && u.Scheme != "http" {
		return nil, errors.New("endpoint: must be a URL like https://account.documents.azure.com:443/")
	}
	c := &cosmosClient{CosmosAddress: a, base: u}
	if c.Client == nil {
		c.Client = &http.Client{Timeout: 20 * time.Second}
	}
	if a.Credential == nil {
		if c.secret, err = base64.StdEncoding.DecodeString(strings.TrimSpace(a.Key)); err != nil || len(c.secret) == 0 {
			return nil, errors.New("the key is not base64: copy it again from the portal")
		}
	}
	return c, nil
}

// answer is what the account answered.
type answer struct {
	status, sub int
	header      http.Header
	body        []byte
}

func (a answer) ok() bool { return a.status >= 200 && a.status < 300 }

// charge is the RU of the request, 0 if the answer does not say.
func (a answer) charge() float64 {
	ru, _ := strconv.ParseFloat(a.header.Get("x-ms-request-charge"), 64)
	return ru
}

func (a answer) retryAfter() time.Duration {
	ms, _ := strconv.ParseFloat(a.header.Get("x-ms-retry-after-ms"), 64)
	return time.Duration(ms * float64(time.Millisecond))
}

// err is an answer that is not a success.
func (a answer) err() error {
	if a.ok() {
		return nil
	}
	var body struct{ Message string }
	_ = json.Unmarshal(a.body, &body) // an answer without a message
	text := fmt.Sprintf("%d %s", a.status, http.StatusText(a.status))
	if a.sub != 0 {
		text += fmt.Sprintf(", sub-status %d", a.sub)
	}
	message, _, _ := strings.Cut(strings.TrimSpace(body.Message), "\n")
	if message != "" {
		text += ": " + message
	}
	return errors.New(text)
}

// resource is what a request is about. The zero value is the account.
type resource struct {
	kind string // "colls", "pkranges" or "docs"
	id   string // of a document
}

func (c *cosmosClient) link() string { return "dbs/" + c.Database + "/colls/" + c.Container }

// do sends a request, and repeats it while the account throttles it, as Sluice does. The error
// means that there was no answer, or that the account throttled it to the end.
func (c *cosmosClient) do(ctx context.Context, method string, r resource, header map[string]string, body []byte) (answer, error) {
	for n := 1; ; n++ {
		a, err := c.once(ctx, method, r, header, body)
		const most = 30
		if err != nil || a.status != http.StatusTooManyRequests {
			return a, err
		}
		if n == most || pause(ctx, max(a.retryAfter(), 20*time.Millisecond)) != nil {
			return a, a.err()
		}
	}
}

// once sends a request.
func (c *cosmosClient) once(ctx context.Context, method string, r resource, header map[string]string, body []byte) (answer, error) {
	path, signed := "/", ""
	if r.kind != "" {
		path, signed = "/"+c.link(), c.link()
		if r.kind != "colls" {
			path += "/" + r.kind
		}
		if r.id != "" {
			path += "/" + r.id
			signed += "/docs/" + r.id
		}
	}
	u := *c.base
	u.Path = path
	req, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(body))
	if err != nil {
		return answer{}, errors.New("the request cannot be made: check the names of the database and the container")
	}
	date := time.Now().UTC().Format(http.TimeFormat)
	req.Header.Set("x-ms-date", date)
	req.Header.Set("x-ms-version", apiVersion)
	req.Header.Set("User-Agent", "sluice-check")
	if len(body) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	for name, value := range header {
		req.Header.Set(name, value)
	}
	if err := c.authorize(ctx, req, r.kind, signed, date); err != nil {
		return answer{}, err
	}
	resp, err := detached{c.Client}.Do(req)
	if err != nil {
		var failed *url.Error
		if errors.As(err, &failed) {
			err = failed.Err
		}
		return answer{}, err
	}
	defer resp.Body.Close()
	a := answer{status: resp.StatusCode, header: resp.Header}
	a.sub, _ = strconv.Atoi(resp.Header.Get("x-ms-substatus"))
	a.body, err = io.ReadAll(io.LimitReader(resp.Body, maxCosmosAnswer))
	return a, err
}

// authorize signs the method, the kind and the name of the resource, and the time, see
// learn.microsoft.com/rest/api/cosmos-db/access-control-on-cosmosdb-resources.
func (c *cosmosClient) authorize(ctx context.Context, req *http.Request, kind, link, date string) error {
	token := ""
	if c.Credential != nil {
		got, err := c.Credential.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{"https://" + c.base.Hostname() + "/.default"}})
		if err != nil {
			return fmt.Errorf("no token from Entra ID: %s", oneLine(err))
		}
		token = "type=aad&ver=1.0&sig=" + got.Token
	} else {
		mac := hmac.New(sha256.New, c.secret)
		fmt.Fprintf(mac, "%s\n%s\n%s\n%s\n\n", strings.ToLower(req.Method), kind, link, strings.ToLower(date))
		token = "type=master&ver=1.0&sig=" + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	}
	req.Header.Set("Authorization", url.QueryEscape(token))
	return nil
}

// success is the error of a request that was not successful.
func success(a answer, err error) (answer, error) {
	if err == nil {
		err = a.err()
	}
	return a, err
}

// get reads a resource as JSON.
func (c *cosmosClient) get(ctx context.Context, r resource, header map[string]string, into any) error {
	a, err := success(c.do(ctx, http.MethodGet, r, header, nil))
	if err == nil {
		err = json.Unmarshal(a.body, into)
	}
	return err
}
