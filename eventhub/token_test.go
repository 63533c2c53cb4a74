package eventhub

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"
	_ "unsafe" // for the linkname

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/sluice-go/sluice/emulator"
)

// sdkSignature is the SDK's signature of a namespace's name, after "SharedAccessSignature=" in the
// connection string that it returns.
//
//go:linkname sdkSignature github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2/internal/sas.CreateConnectionStringWithSASUsingExpiry
func sdkSignature(connectionString string, expiry time.Time) (string, error)

// tokenOf returns the token of a source.
func tokenOf(t *testing.T, s *Source, audience string) (token, tokenType string, expires time.Time) {
	t.Helper()
	token, tokenType, expires, err := s.tokens().token(t.Context(), audience)
	if err != nil {
		t.Fatal(err)
	}
	return token, tokenType, expires
}

func TestSharedKeyToken(t *testing.T) {
	// Signed with OpenSSL: printf 'sb%%3a%%2f%%2f…\n1767225600' | openssl dgst -sha256 -hmac KEY -binary | base64.
	const want = "SharedAccessSignature sr=sb%3a%2f%2fcontoso.servicebus.windows.net%2fflights%2fconsumergroups%2f%24default%2fpartitions%2f0" +
		"&sig=yQwrm4DUcJ3P1iYqxqABQx%2BV%2FhTqY0RPjp4zm8Z8SX0%3D&se=1767225600&skn=listen"
	got := sharedKey{"listen", "c2VjcmV0IGtleQ=="}.sign("sb://contoso.servicebus.windows.net/flights/ConsumerGroups/$Default/Partitions/0", time.Unix(1767225600, 0))
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}

	for _, host := range []string{"contoso.servicebus.windows.net", "CONTOSO.servicebus.windows.net"} {
		for _, key := range []string{"c2VjcmV0IGtleQ==", "x", strings.Repeat("k", 100)} {
			expires := time.Unix(1767225600, 0)
			connection, err := sdkSignature("Endpoint=sb://"+host+"/;SharedAccessKeyName=Root;SharedAccessKey="+key, expires)
			if err != nil {
				t.Fatal(err)
			}
			if _, want, _ := strings.Cut(connection, ";SharedAccessSignature="); (sharedKey{"Root", key}).sign(host, expires) != want {
				t.Errorf("%s, %s: not the SDK's signature %s", host, key, want)
			}
		}
	}

	s, err := New("Endpoint=sb://contoso.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey=a2V5", hubName, nil)
	if err != nil {
		t.Fatal(err)
	}
	before := time.Now()
	token, tokenType, expires := tokenOf(t, s, "amqps://contoso")
	if early, late := before.Add(2*time.Hour-time.Second), time.Now().Add(2*time.Hour+time.Second); expires.Before(early) || expires.After(late) {
		t.Errorf("expires at %v, want in two hours", expires)
	}
	if tokenType != "servicebus.windows.net:sastoken" || token != (sharedKey{"Root", "a2V5"}).sign("amqps://contoso", expires) {
		t.Errorf("%s, a %s", token, tokenType)
	}
}

func TestReadySignatureToken(t *testing.T) {
	signed := sharedKey{"Root", "a2V5"}.sign("sb://contoso", time.Unix(1767225600, 0))
	s, err := New("Endpoint=sb://contoso.servicebus.windows.net/;SharedAccessSignature="+signed, hubName, nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		token, tokenType, expires := tokenOf(t, s, "anything")
		if token != signed || tokenType != "servicebus.windows.net:sastoken" || !expires.Equal(time.Unix(1767225600, 0)) {
			t.Errorf("%s, a %s, expires at %v", token, tokenType, expires)
		}
	}
	for _, text := range []string{"", "hello", "SharedAccessSignature sr=x&sig=y&se=&skn=z", "SharedAccessSignature se=tomorrow", "SharedAccessSignature se=-1", "SharedAccessSignature xse=7"} {
		if expires := readySignature(text).expires(); !expires.IsZero() {
			t.Errorf("%q expires at %v", text, expires)
		}
	}
}

// asked is a credential that records what it is asked for.
type asked struct {
	mu     sync.Mutex
	scopes [][]string
}

func (a *asked) GetToken(_ context.Context, options policy.TokenRequestOptions) (azcore.AccessToken, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.scopes = append(a.scopes, options.Scopes)
	return azcore.AccessToken{Token: "token", ExpiresOn: time.Unix(1767225600, 0)}, nil
}

// An Entra ID token is requested as the SDK requests it.
func TestEntraToken(t *testing.T) {
	b := newBroker(t, &emulator.Config{TLSListen: "127.0.0.1:0"})
	var bySDK, own asked
	open := func(c azcore.TokenCredential) *Source {
		s, err := NewWithCredential(b.TLSAddr(), hubName, c, &Config{TLSConfig: b.tls()})
		b.ok("new source", err)
		t.Cleanup(func() { s.Close(context.Background()) })
		return s
	}
	_, err := open(&bySDK).Describe(b.now) // a management request, which the SDK makes
	b.ok("describe", err)
	token, tokenType, expires := tokenOf(t, open(&own), "amqps://contoso")
	if token != "token" || tokenType != "jwt" || !expires.Equal(time.Unix(1767225600, 0)) {
		t.Errorf("%s, a %s, expires at %v", token, tokenType, expires)
	}
	bySDK.mu.Lock()
	defer bySDK.mu.Unlock()
	if len(bySDK.scopes) == 0 || len(own.scopes) != 1 || !reflect.DeepEqual(own.scopes[0], bySDK.scopes[0]) {
		t.Errorf("asked for %v, the SDK for %v", own.scopes, bySDK.scopes)
	}
}

// The error of a credential is marked, and its time is bounded, as for the SDK.
func TestEntraTokenFails(t *testing.T) {
	s, err := NewWithCredential("contoso.servicebus.windows.net", hubName, stuck{}, &Config{Timeout: 2 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	_, _, _, err = s.tokens().token(t.Context(), "amqps://contoso")
	var token *tokenError
	if !errors.As(err, &token) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the error of a token that is late", err)
	}
}
