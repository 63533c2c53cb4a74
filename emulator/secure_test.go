package emulator_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"github.com/Azure/go-amqp"

	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/internal/proof/need"
)

func TestTLS(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cert.pem")
	srv := start(t, one("h", 1), &emulator.Config{Listen: "-", TLSListen: "127.0.0.1:0", TLSCertOut: file})
	if srv.Addr() != "" || srv.ConnectionString() != srv.TLSConnectionString() {
		t.Errorf("plain address %q, connection string %q", srv.Addr(), srv.ConnectionString())
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) || !roots.Equal(srv.CertPool()) {
		t.Fatalf("the certificate file holds %q", text)
	}
	// The library takes host and port of the connection string for the server's name,
	// so the test sets the name.
	trust := &tls.Config{RootCAs: roots, ServerName: "localhost"}

	p, err := azeventhubs.NewProducerClientFromConnectionString(srv.ConnectionString(), "h", &azeventhubs.ProducerClientOptions{RetryOptions: noRetry, TLSConfig: trust})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close(context.Background())
	big := strings.Repeat("x", 300_000) // several frames, many TLS records
	send(t, p, to0(), "small", big)
	c, err := azeventhubs.NewConsumerClientFromConnectionString(srv.ConnectionString(), "h", "$Default", &azeventhubs.ConsumerClientOptions{RetryOptions: noRetry, TLSConfig: trust})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	got := receive(t, partition(t, c, "0", &azeventhubs.PartitionClientOptions{StartPosition: earliest}), 2)
	if string(got[0].Body) != "small" || string(got[1].Body) != big {
		t.Error("the events have changed on their way")
	}

	stranger, err := azeventhubs.NewProducerClientFromConnectionString(srv.ConnectionString(), "h", &azeventhubs.ProducerClientOptions{RetryOptions: noRetry})
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close(context.Background())
	if _, err := stranger.GetEventHubProperties(testContext(t), nil); err == nil {
		t.Error("a client that doesn't trust the certificate was served")
	}
	for _, name := range []string{"127.0.0.1", "localhost", "::1"} {
		nc, err := tls.Dial("tcp", srv.TLSAddr(), &tls.Config{RootCAs: roots, ServerName: name})
		if err != nil {
			t.Errorf("the certificate isn't good for %s: %v", name, err)
			continue
		}
		nc.Close()
	}
	// A client that doesn't speak TLS, and one that sends nothing, don't affect others.
	nc, err := net.Dial("tcp", srv.TLSAddr())
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(nc, "AMQP\x00\x01\x00\x00")
	silent, err := net.Dial("tcp", srv.TLSAddr())
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	defer nc.Close()
	send(t, p, to0(), "more")
}

// withKey is a connection string with another key in it.
func withKey(srv *emulator.Server, name, key string) string {
	s, _, _ := strings.Cut(srv.ConnectionString(), ";")
	return s + ";SharedAccessKeyName=" + name + ";SharedAccessKey=" + key + ";UseDevelopmentEmulator=true"
}

func TestKeys(t *testing.T) {
	srv := start(t, one("h", 1), &emulator.Config{Keys: []emulator.Key{{Name: "root", Secret: "cm9vdA=="}, {Name: "other", Secret: "b3RoZXI="}}})
	try := func(connection string) error {
		p, err := azeventhubs.NewProducerClientFromConnectionString(connection, "h", &azeventhubs.ProducerClientOptions{RetryOptions: noRetry})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close(context.Background())
		ctx := testContext(t)
		batch, err := p.NewEventDataBatch(ctx, nil)
		if err == nil {
			_, err = p.GetEventHubProperties(ctx, nil)
		}
		if err == nil {
			err = batch.AddEventData(&azeventhubs.EventData{Body: []byte("x")}, nil)
		}
		if err == nil {
			err = p.SendEventDataBatch(ctx, batch, nil)
		}
		return err
	}
	for name, v := range map[string]struct {
		connection, want string
	}{
		"its own":          {srv.ConnectionString(), ""},
		"the other key":    {withKey(srv, "other", "b3RoZXI="), ""},
		"a wrong key":      {withKey(srv, "root", "d3Jvbmc="), "InvalidSignature: The token has an invalid signature."},
		"an unknown name":  {withKey(srv, "nobody", "cm9vdA=="), "InvalidSignature: The token has an invalid signature."},
		"another's key":    {withKey(srv, "root", "b3RoZXI="), "InvalidSignature: The token has an invalid signature."},
		"the name's case":  {withKey(srv, "Root", "cm9vdA=="), "InvalidSignature: The token has an invalid signature."},
		"the key in other": {withKey(srv, "root", "CM9VDA=="), "InvalidSignature: The token has an invalid signature."},
	} {
		err := try(v.connection)
		if v.want == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		var e *azeventhubs.Error
		if !errors.As(err, &e) || e.Code != azeventhubs.ErrorCodeUnauthorizedAccess || !strings.Contains(err.Error(), v.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	got := receive(t, partition(t, consumer(t, srv, "h", "$Default", ""), "0", &azeventhubs.PartitionClientOptions{StartPosition: earliest}), 2)
	if len(got) != 2 {
		t.Errorf("%d events, two clients had a right key", len(got))
	}
}

// entra stands for a credential of Entra ID.
type entra struct{}

func (entra) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{Token: "eyJ0eXAiOiJKV1QifQ.e30.", ExpiresOn: time.Now().Add(time.Hour)}, nil
}

// Without keys any token passes, also one of Entra ID; where there are keys, that is no proof.
func TestOtherTokens(t *testing.T) {
	for _, keys := range [][]emulator.Key{nil, {{Name: "root", Secret: "cm9vdA=="}}} {
		srv := start(t, one("h", 1), &emulator.Config{TLSListen: "127.0.0.1:0", Keys: keys})
		p, err := azeventhubs.NewProducerClient("localhost", "h", entra{}, &azeventhubs.ProducerClientOptions{
			RetryOptions: noRetry, CustomEndpoint: srv.TLSAddr(), TLSConfig: &tls.Config{RootCAs: srv.CertPool(), ServerName: "localhost"},
		})
		if err != nil {
			t.Fatal(err)
		}
		_, err = p.GetEventHubProperties(testContext(t), nil)
		if keys == nil && err != nil || keys != nil && (err == nil || !strings.Contains(err.Error(), "MalformedToken")) {
			t.Errorf("with %d keys: %v", len(keys), err)
		}
		p.Close(context.Background())
	}
}

func TestManagementNeedsAToken(t *testing.T) {
	srv := start(t, append(one("h", 1), one("other", 1)...), &emulator.Config{Keys: []emulator.Key{{Name: "root", Secret: "cm9vdA=="}}})
	s := session(t, srv)
	read := map[string]any{"operation": "READ", "type": "com.microsoft:eventhub", "name": "h"}
	hour := time.Now().Add(time.Hour)
	for _, node := range []string{"$management", "h/$management"} { // the links need no token, as on Azure
		m := newRPC(t, s, node)
		for _, c := range []struct {
			token  any
			status int32
		}{
			{nil, 401}, {"", 401}, {"nonsense", 401}, {int32(7), 401},
			{signed("root", "bm90", "sb://localhost/h", hour), 401},
			{signed("root", "cm9vdA==", "sb://localhost/other", hour), 401},
			{signed("root", "cm9vdA==", "sb://localhost/h", hour), 200},
			{signed("root", "cm9vdA==", "sb://localhost/h/$management", hour), 200},
			{nil, 401},
		} {
			read["security_token"] = c.token
			if status, why, _ := m.call("replies", read, nil); status != c.status {
				t.Errorf("%s with the token %v: %d %s", node, c.token, status, why)
			}
		}
		delete(read, "security_token")
		for _, l := range []interface{ Close(context.Context) error }{m.s, m.r} {
			if err := l.Close(testContext(t)); err != nil {
				t.Fatal(err)
			}
		}
	}
	props := map[string]any{"operation": "put-token", "name": "sb://localhost/h"}
	tokens, err := s.NewSender(testContext(t), "$cbs", nil)
	if err != nil {
		t.Fatal(err)
	}
	cbs := &rpc{t: t, s: tokens, r: receiver(t, s, "$cbs", &amqp.ReceiverOptions{TargetAddress: "tokens"}), n: 100}
	if status, why, _ := cbs.call("tokens", props, signed("root", "cm9vdA==", "sb://localhost/h", time.Now().Add(time.Hour))); status != 202 {
		t.Fatalf("%d %s", status, why)
	}
	m := newRPC(t, s, "$management")
	if status, why, _ := m.call("replies", read, nil); status != 200 {
		t.Errorf("with a token: %d %s", status, why)
	}
	read["name"] = "other"
	if status, _, _ := m.call("replies", read, nil); status != 401 {
		t.Errorf("with another hub's token: %d", status)
	}
	// A refused request does not use up a fault.
	inject(t, srv, emulator.Fault{Kind: emulator.FaultServerBusy, On: emulator.OnManage, Times: 1})
	for _, c := range []struct {
		hub    string
		status int32
	}{{"other", 401}, {"h", 503}, {"h", 200}} {
		read["name"] = c.hub
		if status, _, _ := m.call("replies", read, nil); status != c.status {
			t.Errorf("hub %s with a fault: status %d, want %d", c.hub, status, c.status)
		}
	}
}

// wantRefused checks that a client was refused for want of a right, with Azure's words.
func wantRefused(t *testing.T, err error, texts ...string) {
	t.Helper()
	if condition(err) != amqp.ErrCondUnauthorizedAccess {
		t.Errorf("got %v, want %s", err, amqp.ErrCondUnauthorizedAccess)
		return
	}
	for _, text := range append(texts, "Unauthorized access. ", " are required to perform this operation. Resource: ") {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("got %v, which doesn't say %q", err, text)
		}
	}
}

// A key lets its holder do what it has the right to, however the proof is brought.
func TestRights(t *testing.T) {
	keys := []emulator.Key{
		{Name: "all", Secret: "YWxs"},
		{Name: "listen", Secret: "bGlzdGVu", Rights: emulator.Listen},
		{Name: "send", Secret: "c2VuZA==", Rights: emulator.Send},
		{Name: "both", Secret: "Ym90aA==", Rights: emulator.Listen | emulator.Send},
		{Name: "manage", Secret: "bWFuYWdl", Rights: emulator.Manage},
	}
	srv := start(t, one("Hub", 1), &emulator.Config{Keys: keys})
	for _, key := range keys {
		for _, bySAS := range []bool{true, false} {
			tryRights(t, srv, key, bySAS)
		}
	}
}

func tryRights(t *testing.T, srv *emulator.Server, key emulator.Key, bySAS bool) {
	sasl := amqp.SASLTypeAnonymous()
	if !bySAS {
		sasl = amqp.SASLTypePlain(key.Name, key.Secret)
	}
	conn, err := amqp.Dial(testContext(t), "amqp://"+srv.Addr(), &amqp.ConnOptions{SASLType: sasl})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	s, err := conn.NewSession(testContext(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	if bySAS {
		token := signed(key.Name, key.Secret, "sb://127.0.0.1/hub", time.Now().Add(time.Hour))
		status, why, _ := newRPC(t, s, "$cbs").call("replies", map[string]any{"operation": "put-token", "name": "sb://127.0.0.1/Hub"}, token)
		if status != 202 {
			t.Fatalf("%s: %d %s", key.Name, status, why)
		}
	}
	_, err = s.NewSender(testContext(t), "Hub", nil)
	if key.Name == "listen" {
		wantRefused(t, err, "'Send' claim(s)", "'sb://127.0.0.1/hub'")
	} else if err != nil {
		t.Errorf("%s sends: %v", key.Name, err)
	}
	_, err = s.NewReceiver(testContext(t), "Hub/ConsumerGroups/$Default/Partitions/0", nil)
	if key.Name == "send" {
		wantRefused(t, err, "'Listen' claim(s)", "'sb://127.0.0.1/hub/consumergroups/$default/partitions/0'")
	} else if err != nil {
		t.Errorf("%s receives: %v", key.Name, err)
	}
	read := map[string]any{"operation": "READ", "type": "com.microsoft:eventhub", "name": "Hub"}
	if status, why, _ := newRPC(t, s, "$management").call("replies", read, nil); status != 200 {
		t.Errorf("%s looks: %d %s", key.Name, status, why)
	}
}

// What the Go library makes of keys without the right, and of tokens in the place of a key.
func TestClaims(t *testing.T) {
	root := emulator.Key{Name: "root", Secret: "cm9vdA=="}
	reader := emulator.Key{Name: "reader", Secret: "cmVhZGVy", Rights: emulator.Listen}
	writer := emulator.Key{Name: "writer", Secret: "d3JpdGVy", Rights: emulator.Send}
	srv := start(t, one("h", 1), &emulator.Config{Keys: []emulator.Key{root, reader, writer}})
	token := func(hub string, life time.Duration) string {
		endpoint, _, _ := strings.Cut(srv.ConnectionString(), ";")
		return endpoint + ";SharedAccessSignature=" + signed(root.Name, root.Secret, "sb://localhost/"+hub, time.Now().Add(life)) + ";UseDevelopmentEmulator=true"
	}
	for name, v := range map[string]struct {
		connection   string
		sends, reads string // the error text, "" if there is none
	}{
		"all rights":             {withKey(srv, root.Name, root.Secret), "", ""},
		"the right to listen":    {withKey(srv, reader.Name, reader.Secret), "'Send' claim(s) are required", ""},
		"the right to send":      {withKey(srv, writer.Name, writer.Secret), "", "'Listen' claim(s) are required"},
		"a token":                {token("h", time.Hour), "", ""},
		"a token of yesterday":   {token("h", -time.Hour), "ExpiredToken", "ExpiredToken"},
		"a token of another hub": {token("other", time.Hour), "InvalidAudience", "InvalidAudience"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := azeventhubs.NewProducerClientFromConnectionString(v.connection, "h", &azeventhubs.ProducerClientOptions{RetryOptions: noRetry})
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close(context.Background())
			batch, err := p.NewEventDataBatch(testContext(t), nil)
			if err == nil {
				if err = batch.AddEventData(&azeventhubs.EventData{}, nil); err == nil {
					err = p.SendEventDataBatch(testContext(t), batch, nil)
				}
			}
			wantUnauthorized(t, "sends", err, v.sends)
			send(t, producer(t, srv, "h"), nil, "x")
			c, err := azeventhubs.NewConsumerClientFromConnectionString(v.connection, "h", "$Default", &azeventhubs.ConsumerClientOptions{RetryOptions: noRetry})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close(context.Background())
			_, err = partition(t, c, "0", &azeventhubs.PartitionClientOptions{StartPosition: earliest}).ReceiveEvents(testContext(t), 1, nil)
			wantUnauthorized(t, "reads", err, v.reads)
		})
	}
}

func wantUnauthorized(t *testing.T, what string, err error, text string) {
	t.Helper()
	if text == "" {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
		return
	}
	var e *azeventhubs.Error
	if !errors.As(err, &e) || e.Code != azeventhubs.ErrorCodeUnauthorizedAccess || !strings.Contains(err.Error(), text) {
		t.Errorf("%s: got %v, want %q", what, err, text)
	}
}

// A client that puts no token gets nowhere, unless it proved the key when it connected.
func TestNoToken(t *testing.T) {
	srv := start(t, one("h", 1), &emulator.Config{Keys: []emulator.Key{{Name: "root", Secret: "cm9vdA=="}}})
	for _, v := range []struct {
		sasl amqp.SASLType
		want string
	}{
		{amqp.SASLTypeAnonymous(), "amqp:unauthorized-access"},
		{amqp.SASLTypeExternal(""), "amqp:unauthorized-access"},
		{nil, "amqp:unauthorized-access"},
		{amqp.SASLTypePlain("root", "wrong"), "auth failed"},
		{amqp.SASLTypePlain("root", "cm9vdA=="), ""},
	} {
		err := func() error {
			conn, err := amqp.Dial(testContext(t), "amqp://"+srv.Addr(), &amqp.ConnOptions{SASLType: v.sasl})
			if err != nil {
				return err
			}
			defer conn.Close()
			session, err := conn.NewSession(testContext(t), nil)
			if err != nil {
				return err
			}
			if _, err = session.NewSender(testContext(t), "h", nil); err == nil {
				_, err = session.NewReceiver(testContext(t), "h/ConsumerGroups/$Default/Partitions/0", nil)
			}
			return err
		}()
		if v.want == "" && err != nil || v.want != "" && (err == nil || !strings.Contains(err.Error(), v.want)) {
			t.Errorf("got %v, want %q", err, v.want)
		}
	}
}

// When a token expires and no new one was put, the links that it allowed are detached.
func TestExpiredToken(t *testing.T) {
	need.RealTime(t)
	t.Parallel()
	srv := start(t, one("h", 1), &emulator.Config{Keys: []emulator.Key{{Name: "root", Secret: "cm9vdA=="}}})
	s := session(t, srv)
	c := newRPC(t, s, "$cbs")
	put := func(audience string, expiry time.Time) error {
		token := signed("root", "cm9vdA==", audience, expiry)
		props := map[string]any{"operation": "put-token", "type": "servicebus.windows.net:sastoken", "name": audience}
		if status, why, _ := c.call("replies", props, token); status != 202 {
			return fmt.Errorf("%d %s", status, why)
		}
		return nil
	}
	must(t, put("sb://localhost/h/ConsumerGroups/a", time.Now().Add(time.Hour)))
	lasting := receiver(t, s, "h/ConsumerGroups/a/Partitions/0", nil)
	var short *amqp.Receiver
	retryIfSlow(t, 7*time.Second, func(ctx context.Context) (err error) { // the token expires at a full second
		if err := put("sb://localhost/h/ConsumerGroups/b", time.Now().Add(8*time.Second)); err != nil {
			return err
		}
		short, err = s.NewReceiver(ctx, "h/ConsumerGroups/b/Partitions/0", nil)
		return err
	})
	if _, err := s.NewReceiver(testContext(t), "h/ConsumerGroups/c/Partitions/0", nil); condition(err) != amqp.ErrCondUnauthorizedAccess {
		t.Errorf("a group without a token: %v", err)
	}
	if _, err := short.Receive(testContext(t), nil); condition(err) != amqp.ErrCondUnauthorizedAccess || !strings.Contains(err.Error(), "ExpiredToken") {
		t.Errorf("after the token's expiry: %v", err)
	}
	must(t, put("sb://localhost/h", time.Now().Add(time.Hour)))
	if err := sender(t, s, "h").Send(testContext(t), &amqp.Message{Data: [][]byte{{1}}}, nil); err != nil {
		t.Fatal(err)
	}
	next(t, lasting)
}

func signed(name, key, resource string, expiry time.Time) string {
	sr := url.QueryEscape(resource)
	mac := hmac.New(sha256.New, []byte(key))
	fmt.Fprintf(mac, "%s\n%d", sr, expiry.Unix())
	sig := url.QueryEscape(base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	return fmt.Sprintf("SharedAccessSignature sr=%s&sig=%s&se=%d&skn=%s", sr, sig, expiry.Unix(), name)
}
