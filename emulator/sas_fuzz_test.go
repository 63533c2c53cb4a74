package emulator

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"
)

var (
	fuzzNow  = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	fuzzKeys = map[string]Key{
		"root":   {Name: "root", Secret: "cm9vdA==", Rights: Manage},
		"sender": {Name: "sender", Secret: "c2VuZGVy", Rights: Send},
	}
)

// signed is a token as the client libraries make it.
func signed(secret, keyName, resource string, expiry int64) string {
	sr := url.QueryEscape(resource)
	mac := hmac.New(sha256.New, []byte(secret))
	fmt.Fprintf(mac, "%s\n%d", sr, expiry)
	return fmt.Sprintf("SharedAccessSignature sr=%s&sig=%s&se=%d&skn=%s", sr, url.QueryEscape(base64.StdEncoding.EncodeToString(mac.Sum(nil))), expiry, keyName)
}

// Whatever is put as a token proves nothing unless a key has signed it.
func FuzzToken(f *testing.F) {
	const audience = "amqps://host/hub/ConsumerGroups/g/Partitions/0"
	genuine := map[string]bool{}
	for _, resource := range []string{"sb://host/hub", "host/hub/", "amqp://host/"} {
		token := signed("cm9vdA==", "root", resource, fuzzNow.Unix()+60)
		s, _ := parseSAS(token)
		genuine[s.keyName+"\n"+s.signed] = true
		f.Add(token, audience)
	}
	f.Add(signed("cm9vdA==", "sender", "sb://host/hub", fuzzNow.Unix()+60), audience)
	f.Add(signed("c2VuZGVy", "sender", "sb://host/hub", fuzzNow.Unix()), audience)
	f.Add("SharedAccessSignature sr=&sig=%zz&se=99999999999999999999&skn", "")
	f.Fuzz(func(t *testing.T, token, audience string) {
		g, why := verify(fuzzKeys, fuzzNow, token, audience)
		switch s, _ := parseSAS(token); {
		case why == accepted && !genuine[s.keyName+"\n"+s.signed]:
			t.Fatalf("%q was never signed, and is accepted", token)
		case why == accepted && (g.rights != Manage || !g.expiry.Equal(fuzzNow.Add(time.Minute))):
			t.Fatalf("%q grants %v until %v", token, g.rights, g.expiry)
		case why != accepted && g != (grant{}):
			t.Fatalf("%q is refused, yet grants %v", token, g)
		case strings.ContainsAny(string(why), "\r\n"):
			t.Fatalf("a refusal of several lines: %q", why)
		}
	})
}

// A token signed with a key is accepted for its resource and what is below, until it
// expires; with one byte changed it is another token, which none has signed.
func FuzzSAS(f *testing.F) {
	f.Add("root", "host/hub", "/ConsumerGroups/g", int64(60), uint(30), byte(1))
	f.Add("sender", "sb://host/a b&c=d%/ü", "x", int64(-1), uint(70), byte('&'))
	f.Add("nobody", "", "/", int64(1)<<62, uint(3), byte(0))
	f.Fuzz(func(t *testing.T, keyName, resource, below string, ahead int64, at uint, change byte) {
		if strings.ContainsAny(keyName, "&=") {
			return // none of the configured ones
		}
		key, known := fuzzKeys[keyName]
		expiry := fuzzNow.Unix() + ahead
		token := signed(key.Secret, keyName, resource, expiry)
		want := accepted
		switch {
		case !known:
			want = badSignature
		case ahead <= 0 || expiry < 0 || expiry > 1<<55: // beyond the years that a time can hold
			want = "ExpiredToken"
		}
		audience := resource + below
		if !strings.HasPrefix(below, "/") || !strings.Contains(resource, "/") {
			audience = resource
		}
		if !strings.Contains(resource, "://") {
			audience = "amqps://" + audience
		}
		if _, why := verify(fuzzKeys, fuzzNow, token, audience); !strings.HasPrefix(string(why), string(want)) || want == accepted && why != accepted {
			t.Fatalf("%q for %q: got %q, want %q", token, audience, why, want)
		}

		changed := []byte(token)
		changed[at%uint(len(changed))] ^= change
		before, _ := parseSAS(token)
		after, ok := parseSAS(string(changed))
		same := ok && after.keyName == before.keyName && after.signed == before.signed && hmac.Equal(after.mac, before.mac)
		if _, why := verify(fuzzKeys, fuzzNow, string(changed), audience); why == accepted && !same {
			t.Fatalf("%q became %q, which is accepted", token, changed)
		}
	})
}

// SASL PLAIN accepts the name of a key with its secret, and nothing else.
func FuzzPlain(f *testing.F) {
	f.Add([]byte("\x00root\x00cm9vdA=="))
	f.Add([]byte("x\x00sender\x00c2VuZGVy"))
	f.Add([]byte("\x00nobody\x00"))
	f.Add([]byte("\x00root\x00cm9vdA==\x00"))
	f.Fuzz(func(t *testing.T, response []byte) {
		a := newAuthority(fuzzKeys)
		err := a.plain(response)
		a.stop()
		right := false
		for _, k := range fuzzKeys {
			before, ok := strings.CutSuffix(string(response), "\x00"+k.Name+"\x00"+k.Secret)
			right = right || ok && !strings.Contains(before, "\x00")
		}
		if right != (err == nil) || right != (a.saslKey != nil) {
			t.Fatalf("%q: %v, proved %v", response, err, a.saslKey)
		}
	})
}
