package eventhub

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

// The types of tokens that the node $cbs accepts.
const (
	tokenSAS = "servicebus.windows.net:sastoken"
	tokenJWT = "jwt"
)

// tokens supplies what a connection proves its rights with, at the node $cbs. The audience is the
// address of what the token is for, such as amqps://NAMESPACE/HUB/ConsumerGroups/GROUP/Partitions/0.
// The token is valid until expires; zero if that is not known, or never. An implementation is safe
// for concurrent use, and returns a token that is as new as it can have.
type tokens interface {
	token(ctx context.Context, audience string) (token, tokenType string, expires time.Time, err error)
}

// tokens returns the tokens of the source's credential.
func (s *Source) tokens() tokens {
	switch {
	case s.credential != nil:
		return entraTokens{s.credential}
	case s.broker.signature != "":
		return readySignature(s.broker.signature)
	}
	return sharedKey{name: s.broker.keyName, key: s.broker.key}
}

// signatureLife is how long a signature is valid: two hours, as Azure's SDKs have it.
const signatureLife = 2 * time.Hour

// sharedKey signs tokens with a shared access key.
type sharedKey struct{ name, key string }

func (k sharedKey) token(_ context.Context, audience string) (string, string, time.Time, error) {
	expires := time.Now().Add(signatureLife).Round(time.Second)
	return k.sign(audience, expires), tokenSAS, expires, nil
}

// sign makes a SharedAccessSignature, as [Azure documents it]: the HMAC-SHA256 of the escaped
// audience and the time of expiry, in seconds since 1970.
//
// [Azure documents it]: https://learn.microsoft.com/azure/event-hubs/authenticate-shared-access-signature
func (k sharedKey) sign(audience string, expires time.Time) string {
	resource := strings.ToLower(url.QueryEscape(audience))
	expiry := strconv.FormatInt(expires.Unix(), 10)
	mac := hmac.New(sha256.New, []byte(k.key))
	mac.Write([]byte(resource + "\n" + expiry))
	signature := url.QueryEscape(base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	return fmt.Sprintf("SharedAccessSignature sr=%s&sig=%s&se=%s&skn=%s", resource, signature, expiry, k.name)
}

// readySignature is a SharedAccessSignature that somebody else has signed. It cannot be renewed.
type readySignature string

func (s readySignature) token(context.Context, string) (string, string, time.Time, error) {
	return string(s), tokenSAS, s.expires(), nil
}

// expires returns the time in the signature's field se, zero if there is none.
func (s readySignature) expires() time.Time {
	_, list, _ := strings.Cut(string(s), " ")
	for field := range strings.SplitSeq(list, "&") {
		if text, ok := strings.CutPrefix(field, "se="); ok {
			if seconds, err := strconv.ParseInt(text, 10, 64); err == nil && seconds > 0 {
				return time.Unix(seconds, 0)
			}
		}
	}
	return time.Time{}
}

// entraScope is what a token of Entra ID is requested for. The two slashes are the SDK's: the
// resource is https://eventhubs.azure.net/, and Entra ID compares it with its slash.
const entraScope = "https://eventhubs.azure.net//.default"

// entraTokens are those of Entra ID. They are for the whole service, whatever the audience.
type entraTokens struct{ credential azcore.TokenCredential }

func (t entraTokens) token(ctx context.Context, _ string) (string, string, time.Time, error) {
	token, err := t.credential.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{entraScope}})
	if err != nil {
		return "", "", time.Time{}, err
	}
	return token.Token, tokenJWT, token.ExpiresOn, nil
}
