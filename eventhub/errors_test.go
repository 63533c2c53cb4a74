package eventhub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/driver"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/go-amqp"
)

// static is a credential that always gives the same token.
type static string

func (s static) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{Token: string(s), ExpiresOn: time.Now().Add(time.Hour)}, nil
}

func TestEpochIn(t *testing.T) {
	for text, want := range map[string]int64{
		"New receiver 'a' with higher epoch of '7' is created hence current receiver 'b' with epoch '3' is getting disconnected.": 7,
		"Receiver 'nil' with a higher epoch '12' already exists. Receiver 'b' with epoch 3 cannot be created.":                    12,
		"Receiver 'nil' with a higher epoch '9223372036854775807' already exists.":                                                math.MaxInt64,
		"Receiver 'nil' with a higher epoch '9999999999999999999' already exists.":                                                0,
		"Receiver 'nil' with a higher epoch '99999999999999999999999999' already exists.":                                         0,
		"Receiver 'nil' with a higher epoch 'x' already exists.":                                                                  0,
		"": 0,
	} {
		if got := epochIn(text); got != want {
			t.Errorf("%q: got %d, want %d", text, got, want)
		}
	}
}

type answer int

func (a answer) Error() string {
	return fmt.Sprintf("rpc: failed, status code %d and description: no. TrackingId:1, SystemTracker:x, Timestamp:y", int(a))
}
func (a answer) RPCCode() int { return int(a) }

func TestExplain(t *testing.T) {
	s, err := New(good, "flights", nil)
	if err != nil {
		t.Fatal(err)
	}
	denied := &azidentity.AuthenticationFailedError{RawResponse: &http.Response{StatusCode: 401, Status: "401 Unauthorized", Body: http.NoBody}}
	down := &azidentity.AuthenticationFailedError{RawResponse: &http.Response{StatusCode: 503, Status: "503 Unavailable", Body: http.NoBody}}
	for _, c := range []struct {
		err     error
		want    string
		refused bool
	}{
		{&amqp.Error{Condition: amqp.ErrCondUnauthorizedAccess, Description: "Listen is missing"}, "not authorised", true},
		{&amqp.Error{Condition: amqp.ErrCondNotFound, Description: "no 'flights'"}, "not found", true},
		{&amqp.LinkError{RemoteErr: &amqp.Error{Condition: "com.microsoft:entity-disabled"}}, "disabled", true},
		{&amqp.Error{Condition: "com.microsoft:argument-out-of-range"}, "no such partition", true},
		{&amqp.Error{Condition: "com.microsoft:server-busy", Description: "50009"}, "50009", false},
		{&amqp.Error{Condition: amqp.ErrCondResourceLimitExceeded, Description: "5 receivers"}, "5 receivers", false},
		{answer(401), "not authorised", true},
		{answer(404), "not found", true},
		{answer(500), "flights: no. TrackingId:1", false},
		{io.ErrUnexpectedEOF, "contoso.servicebus.windows.net:5671 closed the connection", false},
		{&tokenError{denied}, "no token from Entra ID", true},
		{&tokenError{fmt.Errorf("chain: %w", errors.Join(io.EOF, denied))}, "no token from Entra ID", true},
		{&tokenError{&azidentity.AuthenticationFailedError{}}, "no token from Entra ID", false},
		{&tokenError{down}, "no token from Entra ID", false},
		{&tokenError{errors.New("no route")}, "no route", false},
		{errors.New("two\nlines with " + canary), "two lines with ***", false},
		{errors.New(strings.Repeat("ü", 1000)), "ü…", false},
		{errors.New("\xff"), "\uFFFD", false},
	} {
		got := s.explain("hub flights", c.err)
		checkMessage(t, got.Error(), c.want)
		checkMessage(t, got.Error(), "hub flights: ")
		if errors.Is(got, driver.ErrRefused) != c.refused {
			t.Errorf("%q: refused: %v", got, !c.refused)
		}
		if strings.Contains(got.Error(), "SystemTracker") {
			t.Errorf("%q has the broker's notes", got)
		}
	}
	for _, end := range []error{context.Canceled, context.DeadlineExceeded} {
		if got := s.explain("hub flights", end); !errors.Is(got, end) {
			t.Errorf("%v became %v", end, got)
		}
	}
}

func TestCredentialIsBounded(t *testing.T) {
	c := boundedCredential{stuck{}, time.Millisecond}
	_, err := c.GetToken(t.Context(), policy.TokenRequestOptions{})
	var token *tokenError
	if !errors.As(err, &token) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

// stuck is a credential that never answers.
type stuck struct{}

func (stuck) GetToken(ctx context.Context, _ policy.TokenRequestOptions) (azcore.AccessToken, error) {
	<-ctx.Done()
	return azcore.AccessToken{}, ctx.Err()
}
