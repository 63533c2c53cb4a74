package kafka

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/suite"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// credential returns a token that names its scope, or blocks.
type credential struct{ blocks bool }

func (c credential) GetToken(ctx context.Context, options policy.TokenRequestOptions) (azcore.AccessToken, error) {
	if c.blocks {
		<-ctx.Done()
		return azcore.AccessToken{}, ctx.Err()
	}
	return azcore.AccessToken{Token: "for " + strings.Join(options.Scopes, " ")}, nil
}

// A token of Entra ID is for the namespace, and one that does not come is given up.
func TestEntraID(t *testing.T) {
	brokers := []string{"Contoso.servicebus.windows.net:9093"}
	m, err := EntraID(credential{}).mechanism(brokers, time.Minute)
	suite.NoError(t, "mechanism", err)
	s, first, err := m.Authenticate(suite.Context(t), brokers[0])
	suite.NoError(t, "authenticate", err)
	if want := "n,,\x01auth=Bearer for https://contoso.servicebus.windows.net/.default\x01\x01"; string(first) != want || m.Name() != "OAUTHBEARER" {
		t.Errorf("%s begins with %q, want %q", m.Name(), first, want)
	}
	if done, answer, err := s.Challenge(nil); !done || answer != nil || err != nil {
		t.Errorf("at the end: %v, %q, %v", done, answer, err)
	}
	m, err = EntraID(credential{blocks: true}).mechanism(brokers, time.Millisecond)
	suite.NoError(t, "mechanism", err)
	_, _, err = m.Authenticate(suite.Context(t), brokers[0])
	if _, ours := errors.AsType[*tokenError](err); !ours || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a credential that does not answer: %v", err)
	}
}

// A broker refuses to authenticate a connection again too soon, with the same code as one that
// expects no authentication. The first is asked over another connection, the second is named.
func TestIllegalState(t *testing.T) {
	c, fake := newFake(t, kfake.EnableSASL(), kfake.Superuser("PLAIN", "user", "password"),
		kfake.BrokerConfigs(map[string]string{"connections.max.reauth.ms": "1000"})) // before each request
	s, err := c.open(t, &Config{Authentication: Plain("user", "password")}).Source(c.topic, "test", nil)
	suite.NoError(t, "source", err)
	_, err = s.Describe(suite.Context(t))
	suite.NoError(t, "describe", err)
	refusal := kfake.Fault{Keys: []kmsg.Key{kmsg.SASLHandshake}, Err: kerr.IllegalSaslState}
	once := fake.Fault(refusal)
	_, err = s.Describe(suite.Context(t))
	if err != nil || once.Hits() != 1 {
		t.Errorf("refused %d times: %v", once.Hits(), err)
	}
	refusal.Count = -1
	fake.Fault(refusal)
	_, err = s.Describe(suite.Context(t))
	if !errors.Is(err, driver.ErrRefused) || !strings.Contains(err.Error(), "the broker expects no authentication at this port") {
		t.Errorf("refused always: %v", err)
	}
}

// A refusal is answered, so that the broker says why, and never taken for success.
func TestBearerChallenge(t *testing.T) {
	m, err := OAuthBearer(func(context.Context) (string, error) { return "token", nil }).mechanism(nil, time.Minute)
	suite.NoError(t, "mechanism", err)
	s, _, err := m.Authenticate(suite.Context(t), "")
	suite.NoError(t, "authenticate", err)
	if done, answer, err := s.Challenge([]byte(`{"status":"invalid_token"}`)); done || string(answer) != "\x01" || err != nil {
		t.Errorf("a challenge: %v, %q, %v", done, answer, err)
	}
	if done, _, err := s.Challenge(nil); done || err == nil {
		t.Errorf("after a challenge: %v, %v", done, err)
	}
	for _, token := range []string{"", "a\x01b"} {
		m, err := OAuthBearer(func(context.Context) (string, error) { return token, nil }).mechanism(nil, time.Minute)
		suite.NoError(t, "mechanism", err)
		if _, _, err := m.Authenticate(suite.Context(t), ""); err == nil {
			t.Errorf("the token %q is used", token)
		}
	}
}
