package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/sluice-go/sluice/driver"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// refusedError is a [driver.ErrRefused] whose text says in one line what was refused, why, and what
// to do.
type refusedError struct {
	text string
	err  error
}

func (r *refusedError) Error() string        { return r.text }
func (r *refusedError) Unwrap() error        { return r.err }
func (r *refusedError) Is(target error) bool { return target == driver.ErrRefused }

// advice says what to do about errors of a broker that another attempt does not cure. The names are
// those of Kafka's protocol.
var advice = map[error]string{
	kerr.UnknownTopicOrPartition:    "no such topic: check the name, or create it",
	kerr.UnknownTopicID:             "no such topic: check the name, or create it",
	kerr.InvalidTopicException:      "no topic can have this name: check it",
	kerr.TopicAuthorizationFailed:   "not authorised: grant the operations Describe and Read on the topic",
	kerr.GroupAuthorizationFailed:   "not authorised: grant the operations Describe and Read on the group",
	kerr.ClusterAuthorizationFailed: "not authorised: grant the operation Describe on the cluster",
	kerr.SaslAuthenticationFailed:   "authentication refused: check the user and the password, or the token",
	kerr.UnsupportedSaslMechanism:   "the broker does not have this authentication mechanism: use one of those that its listener enables (sasl.enabled.mechanisms)",
	kerr.IllegalSaslState:           "the broker expects no authentication at this port: connect to a listener with SASL",
	kerr.UnsupportedVersion:         "the broker does not know a request: it must be Kafka 2.1 or later",
	kerr.SecurityDisabled:           "the broker has no security features: connect to another one, or use no authentication",
	kerr.PolicyViolation:            "a policy of the broker forbids it",
}

// explain is the client's Explain.
func (s *Source) explain(thing string, err error) error { return s.client.Explain(thing, err) }

// Explain turns an error of a request over [Client.Requests] into one clear line that begins with
// what was asked and shows no secret. It is a [driver.ErrRefused] if another attempt cannot help.
func (c *Client) Explain(thing string, err error) error {
	if err == nil || isOurs(err) {
		return err
	}
	code := kerrOf(err)
	if what, known := advice[code]; known {
		return &refusedError{fmt.Sprintf("%s: %s (the broker says: %s)", thing, what, c.oneLine(err.Error())), err}
	}
	var certificate *tls.CertificateVerificationError
	var remote *net.OpError
	var token *tokenError
	var eof *kgo.ErrFirstReadEOF
	switch {
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("%s: %w", thing, err)
	case errors.As(err, &remote) && remote.Op == "dial":
		return fmt.Errorf("%s: cannot connect: %s: check the addresses of the brokers, and whether they run", thing, c.oneLine(remote.Error()))
	case errors.Is(err, context.DeadlineExceeded): // which a dial that times out is too
		return fmt.Errorf("%s: %w", thing, err)
	case errors.As(err, &certificate):
		return &refusedError{fmt.Sprintf("%s: the broker's certificate is not valid here (%s): trust its authority, or use the name that it names", thing, c.oneLine(certificate.Err.Error())), err}
	case errors.As(err, &remote) && remote.Op == "remote error" && strings.Contains(remote.Err.Error(), "certificate"):
		return &refusedError{fmt.Sprintf("%s: the broker refuses the client's certificate (%s): give one that it trusts", thing, c.oneLine(remote.Err.Error())), err}
	case strings.Contains(err.Error(), "tls alert record"):
		return &refusedError{fmt.Sprintf("%s: the broker expects TLS at this port: connect over TLS, or to another listener", thing), err}
	case errors.As(err, &token):
		text := fmt.Sprintf("%s: no token: %s", thing, c.oneLine(token.Error()))
		if errors.Is(err, driver.ErrRefused) {
			return &refusedError{text, err}
		}
		return errors.New(text)
	case errors.Is(err, io.EOF), errors.As(err, &eof):
		return fmt.Errorf("%s: the broker closed the connection: check the port, and whether its listener expects TLS and authentication as they are set", thing)
	case code != nil:
		return fmt.Errorf("%s: the broker says: %s", thing, c.oneLine(err.Error()))
	case isTimeout(err):
		return fmt.Errorf("%s: no answer within %v: %s", thing, c.timeout/3, c.oneLine(err.Error()))
	}
	return fmt.Errorf("%s: %s", thing, c.oneLine(err.Error()))
}

// isOurs reports whether an error is already explained.
func isOurs(err error) bool {
	for _, known := range []error{driver.ErrRetention, driver.ErrTruncated, driver.ErrUndecodable, errRecreated, errClosed} {
		if errors.Is(err, known) {
			return true
		}
	}
	var refused *refusedError
	return errors.As(err, &refused)
}

// kerrOf returns the error of Kafka's protocol that an error is or wraps, nil if there is none.
func kerrOf(err error) error {
	var code *kerr.Error
	if errors.As(err, &code) {
		return code
	}
	return nil
}

// passes reports whether another attempt, perhaps at another broker, may succeed.
func passes(err error) bool {
	var certificate *tls.CertificateVerificationError
	var authority x509.UnknownAuthorityError
	switch code := kerrOf(err); {
	case isOurs(err), errors.Is(err, driver.ErrPastEnd), errors.Is(err, driver.ErrRefused):
		return false
	case code != nil:
		return kerr.IsRetriable(code)
	}
	return !errors.As(err, &certificate) && !errors.As(err, &authority) && !errors.Is(err, kgo.ErrClientClosed)
}

// isUnknownTopic reports whether a broker does not know the topic.
func isUnknownTopic(err error) bool {
	return errors.Is(err, kerr.UnknownTopicOrPartition) || errors.Is(err, kerr.UnknownTopicID)
}

// unsupported reports whether the brokers are too old for a request.
func unsupported(err error) bool {
	return err != nil && (errors.Is(err, kerr.UnsupportedVersion) || errors.Is(err, kerr.UnsupportedForMessageFormat) || strings.Contains(err.Error(), "broker is too old"))
}

// isTimeout reports whether a connection or an answer did not come in time.
func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// oneLine shortens a text from outside to one line without our secrets.
func (c *Client) oneLine(text string) string {
	const limit = 300
	text = strings.ToValidUTF8(strings.Join(strings.Fields(c.hide(text)), " "), "\uFFFD")
	if len(text) > limit {
		text = strings.ToValidUTF8(text[:limit], "") + "…"
	}
	return text
}
