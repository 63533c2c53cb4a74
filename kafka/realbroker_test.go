package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/kafkatest"
	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/internal/proof/suite"
)

// newReal makes a topic of two partitions on the shared broker.
func newReal(t testing.TB, configs ...string) *cluster {
	t.Helper()
	return newCluster(t, kafkatest.Shared(t).Brokers(), kafkatest.Topic(t, 2, configs...))
}

func TestOneBroker(t *testing.T) {
	need.Kafka(t)
	t.Parallel()
	conformance(t, func(t testing.TB) *cluster { return newReal(t) })
}

// A log that stamps events itself has no times of senders.
func TestAppendTime(t *testing.T) {
	need.Kafka(t)
	t.Parallel()
	c := newReal(t, "message.timestamp.type=LogAppendTime")
	sent := time.Now()
	c.send(t, "a", "b")
	events, err := openAt(t, c.source(t, nil), driver.Origin).Read(suite.Context(t), 1)
	suite.NoError(t, "read", err)
	if e := events[0]; !e.Created.IsZero() || e.Enqueued.Sub(sent).Abs() > time.Minute {
		t.Errorf("created at %v, enqueued at %v; want only the time of the log, about %v", e.Created, e.Enqueued, sent)
	}
}

// Compaction takes records away, also the last ones: what is left is read, and all numbers are
// passed.
func TestCompactedLog(t *testing.T) {
	need.Kafka(t)
	need.RealTime(t)
	t.Parallel()
	c := newReal(t, "cleanup.policy=compact", "segment.ms=200", "min.cleanable.dirty.ratio=0.001", "delete.retention.ms=0", "max.compaction.lag.ms=100", "min.compaction.lag.ms=0")
	s := c.source(t, nil)
	live := openAt(t, s, driver.Origin)
	keyed := func(key, body string) *driver.Event { return &driver.Event{Key: key, Body: []byte(body)} }
	suite.NoError(t, "append", c.append(suite.Context(t), "0", keyed("a", "1"), keyed("b", "2"), keyed("a", "3"), keyed("c", "4"), keyed("b", "5")))
	if got, _ := readTo(t, live, 4); got != "12345" {
		t.Errorf("read %q", got)
	}
	// Each of these begins a segment, after which the ones before are compacted.
	for at := int64(5); ; at++ {
		time.Sleep(300 * time.Millisecond)
		suite.NoError(t, "append", c.append(suite.Context(t), "0", &driver.Event{Key: "z", Body: nil}))
		if got, at := readTo(t, openAt(t, s, driver.Origin), at); got == "345" {
			t.Logf("compacted by %d", at.Sequence)
			break
		}
		if t.Context().Err() != nil || at > 300 {
			t.Fatal("the log was not compacted")
		}
	}
	end := last(t, s)
	if _, at := readTo(t, live, end); at.Sequence != end {
		t.Errorf("a reader that was open read up to %v of %d", at, end)
	}
	for after, want := range map[int64]string{-1: "345", 0: "345", 1: "345", 2: "45", 3: "5", 4: ""} {
		if got, _ := readTo(t, openAt(t, s, driver.Position{Sequence: after}), end); got != want {
			t.Errorf("after %d read %q, want %q", after, got, want)
		}
	}
}

// All that a listener of Kafka may ask for is given, and who lacks it is refused in words that say
// what to do.
func TestSecured(t *testing.T) {
	need.Kafka(t)
	need.RealTime(t)
	t.Parallel()
	secured := kafkatest.New(t, &kafkatest.Config{Secure: true, Settings: []string{"connections.max.reauth.ms=10000"}})
	topic := secured.Topic(t, 2)
	token := func(valid time.Duration) *Authentication {
		return OAuthBearer(func(context.Context) (string, error) { return secured.Token("someone", valid) })
	}
	// Authenticating takes less than that, even on a busy machine.
	const shortToken = 8 * time.Second
	broken := OAuthBearer(func(context.Context) (string, error) { return "no.valid.token", nil })
	user, password := kafkatest.User, secured.Password()
	try := func(t *testing.T, listener kafkatest.Listener, cfg *Config) (driver.Reader, error) {
		s, err := newCluster(t, secured.Secured(listener), topic).open(t, cfg).Source(topic, "test", nil)
		suite.NoError(t, "source", err)
		if _, err := s.Describe(suite.Context(t)); err != nil {
			return nil, err
		}
		return s.Open(suite.Context(t), "0", driver.Origin, 1)
	}
	readers := map[string]driver.Reader{}
	for name, way := range map[string]struct {
		listener kafkatest.Listener
		cfg      Config
	}{
		"TLS":            {kafkatest.TLS, Config{TLS: secured.TLS(false)}},
		"mutual TLS":     {kafkatest.MTLS, Config{TLS: secured.TLS(true)}},
		"PLAIN":          {kafkatest.SASL, Config{Authentication: Plain(user, password)}},
		"SCRAM-SHA-256":  {kafkatest.SASL, Config{Authentication: SCRAM256(user, password)}},
		"SCRAM-SHA-512":  {kafkatest.SASLTLS, Config{Authentication: SCRAM512(user, password), TLS: secured.TLS(false)}},
		"OAUTHBEARER":    {kafkatest.SASLTLS, Config{Authentication: token(time.Hour), TLS: secured.TLS(false)}},
		"short tokens":   {kafkatest.SASL, Config{Authentication: token(shortToken)}},
		"through a dial": {kafkatest.SASLTLS, Config{Authentication: Plain(user, password), TLS: secured.TLS(false), Dial: new(net.Dialer).DialContext}},
	} {
		r, err := try(t, way.listener, &way.cfg)
		suite.NoError(t, name, err)
		readers[name] = r
	}
	opened := time.Now()
	refused := map[string]struct {
		listener kafkatest.Listener
		cfg      Config
		refused  bool
		want     string
	}{
		"no TLS":         {kafkatest.TLS, Config{}, true, "the broker expects TLS at this port: connect over TLS, or to another listener"},
		"no trust":       {kafkatest.TLS, Config{TLS: &tls.Config{}}, true, "the broker's certificate is not valid here"},
		"no TLS there":   {kafkatest.SASL, Config{TLS: secured.TLS(false)}, false, "the broker closed the connection: check the port, and whether its listener expects TLS and authentication as they are set"},
		"no certificate": {kafkatest.MTLS, Config{TLS: secured.TLS(false)}, true, "the broker refuses the client's certificate"},
		"no SASL":        {kafkatest.SASL, Config{}, false, "the broker closed the connection: check the port, and whether its listener expects TLS and authentication as they are set"},
		"wrong password": {kafkatest.SASL, Config{Authentication: SCRAM512(user, "wrong")}, true, "authentication refused: check the user and the password, or the token"},
		"broken token":   {kafkatest.SASL, Config{Authentication: broken}, true, "authentication refused: check the user and the password, or the token"},
		"no token":       {kafkatest.SASL, Config{Authentication: OAuthBearer(func(context.Context) (string, error) { return "", errors.New("no network") })}, false, "no token: no network"},
	}
	t.Run("refused", func(t *testing.T) {
		for name, way := range refused {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				way.cfg.Timeout = 12 * time.Second // the client tries as long as that again what is not refused
				_, err := try(t, way.listener, &way.cfg)
				if err == nil || errors.Is(err, driver.ErrRefused) != way.refused || !strings.Contains(err.Error(), way.want) || strings.ContainsAny(err.Error(), "\n") {
					t.Errorf("%v; want %q, refused: %v", err, way.want, way.refused)
				}
				t.Log(err)
			})
		}
	})
	// Sessions are authenticated again before they end, while readers are open.
	time.Sleep(time.Until(opened.Add(2 * shortToken)))
	c := newCluster(t, secured.Brokers(), topic)
	c.send(t, "a")
	for name, r := range readers {
		if got, _ := readTo(t, r, 0); got != "a" {
			t.Errorf("%s: read %q", name, got)
		}
	}
}
