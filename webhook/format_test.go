package webhook

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/sluice-go/sluice"
)

var formatOrigin = origin{namespace: "ns.example.com", topic: "flights", incarnation: "2026-01-31T08:00:00Z", partition: "3"}

// encoded returns the body of a request with one event.
func encoded(cfg *Config, m *Message) string {
	c, err := cfg.resolve()
	if err != nil {
		panic(err)
	}
	b, _ := newEncoder(&c, &formatOrigin).batch(nil, []*Message{m}, c.MaxBytes)
	return string(b)
}

func TestFormats(t *testing.T) {
	at := time.Date(2026, 1, 31, 9, 0, 0, 5e8, time.FixedZone("", 3600))
	const (
		cloud   = `[{"specversion":"1.0","source":"//ns.example.com/flights/2026-01-31T08:00:00Z/3","id":"42","attempt":1,"type":"sluice.event"`
		plain   = `{"source":"//ns.example.com/flights/2026-01-31T08:00:00Z/3","topic":"flights","incarnation":"2026-01-31T08:00:00Z","partition":"3","id":"42","attempt":1,"sequence":42`
		json_   = `,"datacontenttype":"application/json","data":`
		deep    = 100
		unicode = "gr\u00fc\u00df \"\n"
	)
	for name, c := range map[string]struct {
		event               sluice.Event
		cloud, array, aline string
	}{
		"JSON":                {sluice.Event{Body: []byte(` {"a":` + "\r\n" + `1.50} `)}, json_ + "{\"a\":\r\n1.50}}]", ",\"data\":{\"a\":\r\n1.50}}", `,"data":{"a":  1.50}}`},
		"JSON by type":        {sluice.Event{Body: []byte(`"x"`), ContentType: "application/vnd.x+json; v=1"}, `,"datacontenttype":"application/vnd.x+json; v=1","data":"x"}]`, `,"content_type":"application/vnd.x+json; v=1","data":"x"}`, ""},
		"not JSON by type":    {sluice.Event{Body: []byte(`12`), ContentType: "text/plain"}, `,"datacontenttype":"text/plain","data_base64":"MTI="}]`, `,"content_type":"text/plain","data_base64":"MTI="}`, ""},
		"no JSON":             {sluice.Event{Body: []byte{0xff, 0}}, `,"data_base64":"/wA="}]`, `,"data_base64":"/wA="}`, ""},
		"two values":          {sluice.Event{Body: []byte(`1,{"id":"7"}`)}, `,"data_base64":"MSx7ImlkIjoiNyJ9"}]`, `,"data_base64":"MSx7ImlkIjoiNyJ9"}`, ""},
		"invalid UTF-8":       {sluice.Event{Body: []byte("\"\xff\"")}, `,"data_base64":"Iv8i"}]`, `,"data_base64":"Iv8i"}`, ""},
		"too deep":            {sluice.Event{Body: []byte(strings.Repeat("[", deep) + strings.Repeat("]", deep))}, `,"data_base64":"` + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("[", deep)+strings.Repeat("]", deep))) + `"}]`, "", ""},
		"empty":               {sluice.Event{Body: []byte{}}, `,"data_base64":""}]`, `,"data_base64":""}`, ""},
		"null value of Kafka": {sluice.Event{}, `}]`, `,"data":null}`, ""},
		"times":               {sluice.Event{Enqueued: at, Created: at}, `,"time":"2026-01-31T08:00:00.5Z"}]`, `,"enqueued":"2026-01-31T08:00:00.5Z","created":"2026-01-31T08:00:00.5Z","data":null}`, ""},
		"texts":               {sluice.Event{Key: unicode, MessageID: "m", CorrelationID: "c"}, `,"partitionkey":"grüß \"\n","messageid":"m","correlationid":"c"}]`, `,"key":"grüß \"\n","message_id":"m","correlation_id":"c","data":null}`, ""},
		"binary key":          {sluice.Event{Key: "\xff"}, `,"partitionkeybase64":"/w=="}]`, `,"key_base64":"/w==","data":null}`, ""},
		"empty key":           {sluice.Event{EmptyKey: true}, `,"partitionkey":""}]`, `,"key":"","data":null}`, ""},
		"properties": {sluice.Event{Properties: map[string]any{"b": int64(1), "a": "x\"", "c": []byte{1}, "d": math.Inf(1), "e": true}},
			`,"properties":"{\"a\":\"x\\\"\",\"b\":1,\"c\":\"AQ==\",\"d\":\"+Inf\",\"e\":true}"}]`, `,"properties":{"a":"x\"","b":1,"c":"AQ==","d":"+Inf","e":true},"data":null}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c.event.Sequence, c.event.Partition = 42, "3"
			m := &Message{Event: &c.event}
			if got := encoded(nil, m); got != cloud+c.cloud || !json.Valid([]byte(got)) {
				t.Errorf("CloudEvents:\ngot  %s\nwant %s", got, cloud+c.cloud)
			}
			if got := encoded(&Config{Format: JSON}, m); c.array != "" && got != "["+plain+c.array+"]" || !json.Valid([]byte(got)) {
				t.Errorf("JSON:\ngot  %s\nwant [%s]", got, plain+c.array)
			}
			got := encoded(&Config{Format: JSONLines}, m)
			if want := plain + c.aline + "\n"; c.aline != "" && got != want || !json.Valid([]byte(got)) || strings.IndexAny(got, "\r\n") != len(got)-1 {
				t.Errorf("lines:\ngot  %q\nwant %q", got, want)
			}
		})
	}
}

func TestSourceIsEscaped(t *testing.T) {
	o := origin{namespace: "a b", topic: "x/y", incarnation: "ü", partition: "?"}
	if got := o.source(); got != "//a%20b/x%2Fy/%C3%BC/%3F" {
		t.Errorf("got %s", got)
	}
}

// TestLimits: requests have at most so many events and bytes; a larger event goes alone.
func TestLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, format := range []Format{CloudEvents, JSON, JSONLines} {
			v := newReceiver(t)
			s := open(t, "http://test", &Config{Format: format, Transport: v, MaxEvents: 7, MaxBytes: 1200})
			list := messages(50)
			for i := range 10 {
				list[5*i].Event.Body = []byte(`"` + strings.Repeat("x", i*300) + `"`)
			}
			for i, err := range post(t, s, list...) {
				if err != nil || v.stored[int64(i)] != 1 {
					t.Errorf("event %d: %v, stored %d times", i, err, v.stored[int64(i)])
				}
			}
			for _, r := range v.requests {
				if len(r.ids) > 7 || len(r.ids) > 1 && len(r.body) > 1200 {
					t.Errorf("a request with %d events, %d bytes", len(r.ids), len(r.body))
				}
			}
			if n := len(v.requests); n > 35 {
				t.Errorf("%d requests for 50 events: %v", n, v.sizes())
			}
		}
	})
}

// TestSignature checks what a receiver checks, as standardwebhooks.com says.
func TestSignature(t *testing.T) {
	v := newReceiver(t)
	keys := [][]byte{[]byte("0123456789abcdef01234567"), []byte("fedcba987654321001234567")}
	s := open(t, v.serve(), &Config{Keys: keys, Header: http.Header{"x-functions-key": {"topsecret"}}})
	m := message(1)
	for range 2 {
		if err := post(t, s, m)[0]; err != nil {
			t.Fatal(err)
		}
	}
	post(t, s, message(2))
	for _, r := range v.requests {
		id, at := r.header.Get("webhook-id"), r.header.Get("webhook-timestamp")
		var want []string
		for _, key := range keys {
			mac := hmac.New(sha256.New, key)
			mac.Write([]byte(id + "." + at + "." + r.body))
			want = append(want, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
		}
		if got := r.header.Get("webhook-signature"); got != strings.Join(want, " ") || id == "" || at == "" || r.header.Get("X-Functions-Key") != "topsecret" {
			t.Errorf("got %s, want %v; headers %v", got, want, r.header)
		}
	}
	if id := func(i int) string { return v.requests[i].header.Get("webhook-id") }; id(0) != id(1) || id(0) == id(2) {
		t.Errorf("ids %s, %s, %s", id(0), id(1), id(2))
	}
}

func TestParseKey(t *testing.T) {
	// The vector of the specification, github.com/standard-webhooks/standard-webhooks.
	key, err := ParseKey("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil || len(key) != 24 {
		t.Fatalf("%x, %v", key, err)
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(`msg_p5jXN8AQM9LWM0D4loKWxJek.1614265330.{"test": 2432232314}`))
	if got := base64.StdEncoding.EncodeToString(mac.Sum(nil)); got != "g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=" {
		t.Errorf("signature %s", got)
	}
	for _, text := range []string{"", "short", "whsec_", "whsec_???", "whsec_c2hvcnQ="} {
		if _, err := ParseKey(text); err == nil || text != "" && strings.Contains(err.Error(), text) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// token is a credential of Entra ID.
type token struct {
	text string
	err  error
}

func (c token) GetToken(_ context.Context, o policy.TokenRequestOptions) (azcore.AccessToken, error) {
	if len(o.Scopes) != 1 || o.Scopes[0] != "api://x/.default" {
		return azcore.AccessToken{}, errors.New("wrong scope")
	}
	return azcore.AccessToken{Token: c.text, ExpiresOn: time.Now().Add(time.Hour)}, c.err
}

// TestSecrets: no error shows a token, a header or the query of the URL, even if the receiver
// repeats them.
func TestSecrets(t *testing.T) {
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, strings.Repeat(" ", 3)+r.Header.Get("Authorization")+" "+r.Header.Get("X-Key")+" "+r.URL.RawQuery, http.StatusBadRequest)
	}))
	defer srv.Close()
	tls := srv.Client().Transport.(*http.Transport).TLSClientConfig
	s := open(t, srv.URL+"/a?code=queryseCret", &Config{TLS: tls, Credential: token{text: "tokenseCret"}, Scope: "api://x/.default", Header: http.Header{"X-Key": {"headerseCret"}}})
	err := post(t, s, message(1))[0]
	if kind(err) != "rejected" || strings.Contains(err.Error(), "seCret") || !strings.Contains(err.Error(), "(Bearer [secret] [secret] code=[secret])") {
		t.Errorf("got %v", err)
	}
	s = open(t, srv.URL, &Config{TLS: tls, Credential: token{err: errors.New("no\nway")}, Scope: "api://x/.default"})
	if err := post(t, s, message(1))[0]; kind(err) != "outage" || !strings.HasSuffix(err.Error(), "no answer: no token from Entra ID: no") {
		t.Errorf("got %v", err)
	}
	// Without trust in its certificate, nothing is sent.
	m := message(1)
	if err := post(t, open(t, srv.URL, nil), m)[0]; kind(err) != "outage" || m.limit != 0 || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("got %v, limit %d", err, m.limit)
	}
}

func TestNewMistakes(t *testing.T) {
	for _, c := range []struct {
		url  string
		cfg  *Config
		want string
	}{
		{"", nil, "must be a URL like https://example.com/api/events"},
		{"ftp://h", nil, "must be a URL"},
		{"https://u:topsecret@h", nil, "must not contain a user or a password"},
		{"http://h", &Config{Credential: token{}, Scope: "s"}, "a token of Entra ID may be sent over https only"},
		{"https://h", &Config{Credential: token{}}, "credential and scope go together"},
		{"https://h", &Config{Credential: token{}, Scope: "s", Header: http.Header{"Authorization": {"x"}}}, "exclude each other"},
		{"https://h", &Config{Format: 3}, "format 3: no such format"},
		{"https://h", &Config{MaxEvents: -1}, "-1 events per request"},
		{"https://h", &Config{MaxBytes: -1}, "-1 bytes per request"},
		{"https://h", &Config{FlushAfter: -1}, "flush after -1ns"},
		{"https://h", &Config{Concurrency: -1}, "-1 requests at once"},
		{"https://h", &Config{Timeout: -1}, "timeout -1ns"},
		{"https://h", &Config{MaxRetryAfter: -1}, "retry after at most -1ns"},
		{"https://h", &Config{Keys: [][]byte{[]byte("topsecret")}}, "has 9 bytes"},
		{"https://h", &Config{Header: http.Header{"webhook-id": {"x"}}}, "is set by Sluice itself"},
		{"https://h", &Config{Header: http.Header{"X": {"topsecret\r\nY: z"}}}, "a header must not have"},
	} {
		_, err := New(c.url, c.cfg)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "topsecret") {
			t.Errorf("got  %v\nwant %s", err, c.want)
		}
	}
}

func TestCheck(t *testing.T) {
	for status, want := range map[int]string{200: "", 404: "", 405: "", 500: "", 302: "redirects are not followed"} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodHead {
				t.Errorf("method %s", r.Method)
			}
			w.WriteHeader(status)
		}))
		err := open(t, srv.URL, nil).Check(t.Context())
		srv.Close()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%d: %v", status, err)
		}
	}
	if err := open(t, "http://127.0.0.1:1", nil).Check(t.Context()); err == nil || !strings.Contains(err.Error(), "check the URL, the certificates and the network") {
		t.Errorf("no server: %v", err)
	}
}

func FuzzEncode(f *testing.F) {
	f.Add([]byte(`{"a":1}`), "application/json", "k", "v", "source")
	f.Add([]byte("\xff\n"), "text/plain; \"", "\xff", "\x00", "a/b?c")
	f.Add([]byte("[\n1\r]"), "", "", "\u2028", "")
	f.Fuzz(func(t *testing.T, body []byte, contentType, key, property, topic string) {
		m := &Message{Event: &sluice.Event{Sequence: 42, Body: body, ContentType: contentType, Key: key, Properties: map[string]any{property: property}}}
		for _, format := range []Format{CloudEvents, JSON, JSONLines} {
			c, _ := (&Config{Format: format}).resolve()
			b, n := newEncoder(&c, &origin{topic: topic}).batch(nil, []*Message{m, m}, 1<<30)
			list, ids, err := eventsOf(format.contentType(), b)
			if err != nil || n != 2 || len(list) != 2 || ids[0] != 42 || ids[1] != 42 {
				t.Fatalf("%v: %v in %q", err, list, b)
			}
		}
	})
}
