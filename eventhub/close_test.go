package eventhub

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-go/sluice/driver"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/internal/proof/need"
)

// ours are the goroutines that this package or the SDK's client started.
func ours() (stacks []string) {
	buf := make([]byte, 4<<20)
	for _, g := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if strings.Contains(g, "testing.tRunner") {
			continue // the test itself
		}
		if strings.Contains(g, "azeventhubs") || strings.Contains(g, "go-amqp") || strings.Contains(g, "eventhub.(*Source)") || strings.Contains(g, "amqp.(*Client)") || strings.Contains(g, "eventhub.(*ownReceiver)") || strings.Contains(g, "eventhub.ask") {
			stacks = append(stacks, g)
		}
	}
	return stacks
}

func TestCloseLeavesNothing(t *testing.T) {
	receivers(t, func(t *testing.T) {
		brokers(t, func(t *testing.T, b *broker, open func(*Config) *Source) {
			b.send("0", 0, 1000, 100)
			b.producer.Close(b.now)
			b.eventually("the producer's goroutines have ended", func() bool { return len(ours()) == 0 })
			s := open(nil)
			r := b.open(s, "0", driver.Origin, 1)
			b.read(r, 500, 100)
			b.open(s, "1", driver.Origin, 1)
			b.open(s, "0", driver.Origin, 2) // evicts the first
			if _, err := s.Seek(b.now, "0", sluice.Ago(time.Hour), 3); err != nil {
				t.Fatal(err)
			}
			for i := range 10 {
				b.openLower(s, "2", driver.Origin, int64(10-i)).Close(b.now)
				if i == 5 {
					b.DropConnections()
				}
			}
			if len(s.links) != 3 {
				t.Errorf("%d links are kept for Close, 3 were not closed", len(s.links))
			}
			if len(ours()) == 0 {
				t.Error("no goroutines seen: the test sees nothing")
			}
			s.Close(b.now)
			s.Close(b.now)
			r.Close(b.now)
			b.eventually("all goroutines ended", func() bool { return len(ours()) == 0 })
			for what, err := range map[string]error{
				"read":     second(r.Read(b.now, 1)),
				"bounds":   second(s.Bounds(b.now, "0")),
				"describe": second(s.Describe(b.now)),
				"open":     second(s.Open(b.now, "0", driver.Origin, 1)),
				"seek":     second(s.Seek(b.now, "0", sluice.Latest(), 1)),
			} {
				if err == nil {
					t.Errorf("%s after Close: no error", what)
				}
			}
		})
	})
}

func second[T any](_ T, err error) error { return err }

func TestCloseEndsRead(t *testing.T) {
	receivers(t, func(t *testing.T) {
		b := newBroker(t, nil)
		s := b.source(nil)
		for _, close := range map[string]func(driver.Reader){
			"reader": func(r driver.Reader) { r.Close(b.now) },
			"source": func(driver.Reader) { s.Close(b.now) },
		} {
			s = b.source(nil)
			r := b.open(s, "0", driver.Origin, 1)
			done := make(chan error, 1)
			go func() {
				_, err := r.Read(b.now, 1)
				done <- err
			}()
			b.eventually("the read waits", func() bool {
				for _, g := range ours() {
					if strings.Contains(g, "(*link).wait") && (strings.Contains(g, "(*Receiver).Receive") || strings.Contains(g, "[select]:\ngithub.com/sluice-go/sluice/eventhub.(*ownReceiver).wait")) {
						return true
					}
				}
				return false
			})
			close(r)
			if err := <-done; err == nil || errors.Is(err, context.Canceled) {
				t.Errorf("the read ended with %v", err)
			}
		}
	})
}

// Every wrong setting gives an error in one line, which does not show the key.
func TestRefusals(t *testing.T) {
	receivers(t, func(t *testing.T) {
		b := newBroker(t, &emulator.Config{TLSListen: "127.0.0.1:0", Keys: []emulator.Key{{Name: "reader", Secret: canary}}})
		swap := func(text, old, new string) string { return strings.Replace(text, old, new, 1) }
		// Not a port that was free a moment ago: another process may have it by now.
		deadConnection := swap(b.ConnectionString(), b.Addr(), "127.0.0.1:1")
		other := "QW5vdGhlcktleQ=="
		for _, c := range []struct {
			what, connection, hub string
			cfg                   Config
			describe, open        string // what the errors say; none if they are to succeed
			refused               bool
		}{
			{"wrong key", swap(b.ConnectionString(), canary, other), hubName, Config{}, "not authorised", "not authorised", true},
			{"unknown key name", swap(b.ConnectionString(), "reader", "writer"), hubName, Config{}, "not authorised", "not authorised", true},
			{"unknown hub", b.ConnectionString(), "weather", Config{}, "not found", "not found", true},
			{"unknown group", b.ConnectionString(), hubName, Config{ConsumerGroup: "nobody"}, "", "not found", true},
			{"distrusted", b.TLSConnectionString(), hubName, Config{}, "no trusted root has signed its certificate", "no trusted root", false},
			{"TLS to a plain port", swap(b.ConnectionString(), ";UseDevelopmentEmulator=true", ""), hubName, Config{Timeout: 20 * time.Second}, "connect to 127.0.0.1:", "connect to 127.0.0.1:", false},
			{"plain to a TLS port", b.TLSConnectionString() + ";UseDevelopmentEmulator=true", hubName, Config{Timeout: 20 * time.Second}, "closed the connection", "closed the connection", false},
			{"nobody there", deadConnection, hubName, Config{}, "connection refused", "connection refused", false},
			{"no such host", swap(deadConnection, "127.0.0.1", "nowhere.invalid"), hubName, Config{Timeout: 20 * time.Second}, "connect to nowhere.invalid:", "connect to nowhere.invalid:", false},
		} {
			t.Run(c.what, func(t *testing.T) {
				cfg := c.cfg
				cfg.Receiver = b.receiver
				s, err := New(c.connection, c.hub, &cfg)
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close(b.now)
				check := func(err error, want string) {
					t.Helper()
					if want == "" {
						b.ok(c.what, err)
						return
					}
					if err == nil {
						t.Fatal("no error")
					}
					checkMessage(t, err.Error(), want)
					if strings.Contains(err.Error(), other) {
						t.Errorf("%v has the key", err)
					}
					if errors.Is(err, driver.ErrRefused) != c.refused {
						t.Errorf("%v: refused: %v", err, !c.refused)
					}
				}
				_, err = s.Describe(b.now)
				check(err, c.describe)
				_, err = s.Open(b.now, "0", driver.Origin, 1)
				check(err, c.open)
			})
		}
		s := b.source(nil)
		for what, err := range map[string]error{
			"bounds": second(s.Bounds(b.now, "99")),
			"open":   second(s.Open(b.now, "99", driver.Origin, 1)),
			"seek":   second(s.Seek(b.now, "99", sluice.Latest(), 1)),
		} {
			if !errors.Is(err, driver.ErrRefused) {
				t.Errorf("%s of an unknown partition: %v", what, err)
			}
		}
	})
}

// noNetwork is a transport on a machine that reaches nothing.
type noNetwork struct{}

func (noNetwork) Do(*http.Request) (*http.Response, error) { return nil, syscall.ENETUNREACH }

func TestEntraID(t *testing.T) {
	need.RealTime(t)
	receivers(t, func(t *testing.T) {
		b := newBroker(t, &emulator.Config{TLSListen: "127.0.0.1:0"})
		namespace := b.TLSAddr()
		open := func(c azcore.TokenCredential, timeout time.Duration) *Source {
			s, err := NewWithCredential(namespace, hubName, c, &Config{Receiver: b.receiver, TLSConfig: b.tls(), Timeout: timeout})
			b.ok("new source", err)
			t.Cleanup(func() { s.Close(context.Background()) })
			return s
		}
		b.send("0", 0, 10, 0)
		s := open(static("token"), 0)
		b.read(b.open(s, "0", driver.Origin, 1), 10, 10)
		if g := s.Group(); g.Namespace != "127.0.0.1" {
			t.Errorf("group %v", g)
		}
		secret, err := azidentity.NewClientSecretCredential("tenant", "client", canary, &azidentity.ClientSecretCredentialOptions{
			ClientOptions: azcore.ClientOptions{Transport: noNetwork{}, Retry: policy.RetryOptions{MaxRetries: -1}},
		})
		b.ok("new credential", err)
		for _, c := range []azcore.TokenCredential{stuck{}, secret} {
			var err error
			for timeout := 2 * time.Second; timeout < patience; timeout *= 4 { // a busy machine may need longer to connect
				_, err = open(c, timeout).Describe(b.now)
				if err == nil || !strings.Contains(err.Error(), "no answer within") {
					break
				}
			}
			if err == nil || errors.Is(err, driver.ErrRefused) {
				t.Fatalf("%T: %v", c, err)
			}
			checkMessage(t, err.Error(), "hub flights: no token from Entra ID: ")
		}
	})
}
