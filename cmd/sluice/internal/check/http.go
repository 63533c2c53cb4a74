package check

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"net/url"

	"github.com/sluice-go/sluice/pipeline"
	"github.com/sluice-go/sluice/webhook"
)

// httpChecks are the checks of an endpoint. They send no event: it would take effect.
var httpChecks = []check[*httpSystem]{
	{"http.empty", "A request without events, with the pipeline's credential and signature, is answered with success: a receiver that refuses it refuses every other.", 0, (*httpSystem).checkEmpty},
	{"http.signature", "A request with a wrong signature is refused: otherwise everybody who knows the URL can post events.", 0, (*httpSystem).checkSignature},
}

// httpSystem is an endpoint that is checked.
type httpSystem struct {
	name   string
	keys   [][]byte // that sign requests; none: they are not signed
	sink   *webhook.Sink
	forger *webhook.Sink // which signs with another key; nil: requests are not signed
}

// OpenHTTP makes a [System] of an endpoint. It does not connect.
func OpenHTTP(c *pipeline.HTTPConnection) (System, error) {
	s := &httpSystem{name: "HTTP endpoint", keys: c.Config.Keys}
	if u, err := url.Parse(c.URL); err == nil {
		s.name += " " + u.Host + u.EscapedPath()
	}
	var err error
	if s.sink, err = c.Open(c.Config.Keys); err != nil {
		return nil, err
	}
	if len(s.keys) > 0 {
		if s.forger, err = c.Open([][]byte{[]byte(rand.Text())}); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *httpSystem) Name() string    { return s.name }
func (s *httpSystem) Checks() []Check { return bind(s, httpChecks) }

// Creates implements [System].
func (s *httpSystem) Creates() []string {
	return []string{"up to two POST requests without events, of the topic sluice-check"}
}

// Rights implements [System].
func (s *httpSystem) Rights(ctx context.Context) []Right {
	r := Right{Name: "reach the endpoint"}
	r.grant(s.sink.Check(ctx), "check the URL, the certificates and the credential")
	return []Right{r}
}

// Prepare implements [System].
func (s *httpSystem) Prepare(context.Context, *Ledger) error { return nil }

// Close implements [System].
func (s *httpSystem) Close(ctx context.Context) {
	s.sink.Close(ctx)
	if s.forger != nil {
		s.forger.Close(ctx)
	}
}

func (s *httpSystem) checkEmpty(ctx context.Context) Finding {
	err := s.sink.Probe(ctx)
	if err == nil {
		return held("a request without events was answered with success")
	}
	answer, _ := errors.AsType[*webhook.Error](err)
	switch {
	case answer == nil || answer.Status == 0:
		return failed("post a request without events", err)
	case answer.Status == http.StatusUnauthorized || answer.Status == http.StatusForbidden:
		return differed("%s", oneLine(err)).next("compare the key, the headers and the credential with those that the receiver expects, and its clock with this machine's")
	case answer.Status == http.StatusBadRequest || answer.Status == http.StatusUnprocessableEntity:
		return tolerated("the receiver refuses a request without events: %s", oneLine(err)).next("answer an empty batch with 200, so that credential and signature can be checked; a pipeline never sends one")
	}
	return differed("%s", oneLine(err)).next("correct what the answer names; docs/http.md says what each answer means")
}

func (s *httpSystem) checkSignature(ctx context.Context) Finding {
	if s.forger == nil {
		return skipped("the pipeline signs no requests").next("set signature.key, or protect the endpoint in another way")
	}
	err := s.forger.Probe(ctx)
	answer, _ := errors.AsType[*webhook.Error](err)
	switch {
	case err == nil:
		return differed("a request that was signed with another key was answered with success").next("check the header webhook-signature in the receiver, as the examples in examples/http do")
	case answer == nil || answer.Status == 0 || answer.Status >= 500:
		return failed("post a request with a wrong signature", err)
	}
	return held("a request that was signed with another key was answered with %d", answer.Status)
}
