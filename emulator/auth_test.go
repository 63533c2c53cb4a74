package emulator

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const testKey = "c2VjcmV0" // what it decodes to doesn't matter: its text is the secret

func named(keys ...Key) map[string]Key {
	m, err := byName(keys)
	if err != nil {
		panic(err)
	}
	return m
}

func sign(key, name, resource string, expiry int64) string {
	sr := url.QueryEscape(resource)
	mac := hmac.New(sha256.New, []byte(key))
	fmt.Fprintf(mac, "%s\n%d", sr, expiry)
	sig := url.QueryEscape(base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	return fmt.Sprintf("SharedAccessSignature sr=%s&sig=%s&se=%d&skn=%s", sr, sig, expiry, name)
}

// The signature was computed with openssl:
//
//	printf 'sb%%3a%%2f%%2fns.example%%2fflights\n1700003600' | openssl dgst -sha256 -hmac c2VjcmV0 -binary | base64
const vector = "SharedAccessSignature sr=sb%3a%2f%2fns.example%2fflights&sig=baxAIPKHkShaiAlrltad5qBCIxrUaPVIXxYVRxKP1hk%3D&se=1700003600&skn=root"

func TestTokens(t *testing.T) {
	now := time.Unix(1700000000, 0)
	a := newAuthority(named(Key{Name: "root", Secret: testKey}, Key{Name: "second", Secret: "b3RoZXI="}))
	a.now = func() time.Time { return now }
	defer a.stop()
	hour := now.Add(time.Hour).Unix()
	for name, v := range map[string]struct {
		token, audience string
		want            string // start of the refusal
	}{
		"computed elsewhere":          {vector, "sb://ns.example/flights", ""},
		"for the entity":              {sign(testKey, "root", "sb://ns/flights", hour), "sb://ns/flights", ""},
		"with another case":           {sign(testKey, "root", "sb://ns/FLIGHTS", hour), "amqps://ns/Flights/Partitions/0", ""},
		"for the namespace":           {sign(testKey, "root", "ns", hour), "amqp://ns:5672/flights/$management", ""},
		"of the second key":           {sign("b3RoZXI=", "second", "sb://ns/", hour), "sb://ns/flights", ""},
		"of the wrong key":            {sign("d3Jvbmc=", "root", "sb://ns/flights", hour), "sb://ns/flights", "InvalidSignature"},
		"of another name's key":       {sign(testKey, "second", "sb://ns/flights", hour), "sb://ns/flights", "InvalidSignature"},
		"of an unknown key":           {sign(testKey, "nobody", "sb://ns/flights", hour), "sb://ns/flights", "InvalidSignature"},
		"of an unknown key, no key":   {sign("", "nobody", "sb://ns/flights", hour), "sb://ns/flights", "InvalidSignature"},
		"expired":                     {sign(testKey, "root", "sb://ns/flights", now.Unix()), "sb://ns/flights", "ExpiredToken"},
		"with a later expiry put in":  {strings.Replace(sign(testKey, "root", "sb://ns/f", 5), "se=5", "se=1800000000", 1), "sb://ns/f", "InvalidSignature"},
		"for another entity":          {sign(testKey, "root", "sb://ns/flights", hour), "sb://ns/other", "InvalidAudience"},
		"for a name that begins so":   {sign(testKey, "root", "sb://ns/flights", hour), "sb://ns/flights2", "InvalidAudience"},
		"for an entity below":         {sign(testKey, "root", "sb://ns/flights/x", hour), "sb://ns/flights", "InvalidAudience"},
		"of Entra ID":                 {"eyJ0eXAiOiJKV1QifQ.e30.", "sb://ns/flights", "MalformedToken"},
		"empty":                       {"", "sb://ns/flights", "MalformedToken"},
		"without fields":              {"SharedAccessSignature ", "sb://ns/flights", "MalformedToken"},
		"with a signature of no form": {"SharedAccessSignature sr=a&sig=%%%&se=1&skn=root", "sb://ns/flights", "MalformedToken"},
	} {
		why := string(a.put(v.token, v.audience))
		if v.want == "" && why != "" || !strings.HasPrefix(why, v.want) {
			t.Errorf("%s: refused with %q, want %q", name, why, v.want)
		}
		if strings.Contains(why, testKey) {
			t.Errorf("%s: the refusal holds the key", name)
		}
	}
}

func TestGrants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAuthority(named(Key{Name: "root", Secret: testKey}))
		defer a.stop()
		put := func(audience string, d time.Duration) {
			t.Helper()
			if why := a.put(sign(testKey, "root", audience, time.Now().Add(d).Unix()), audience); why != accepted {
				t.Fatal(why)
			}
		}
		check := func(path string, want bool) {
			t.Helper()
			a.mu.Lock()
			defer a.mu.Unlock()
			if got := a.permits(use{path, Send}); got != want {
				t.Errorf("%s: %v", path, got)
			}
		}
		check("flights", false)
		put("sb://ns/flights/Partitions/0", time.Hour)
		check("flights", false)
		check("flights/partitions/0", true)
		check("flights/Partitions/00", false)
		put("sb://ns/flights", 2*time.Hour)
		check("flights/ConsumerGroups/$Default/Partitions/3", true)
		check("other", false)
		if !a.allowHub("Flights") || a.allowHub("other") {
			t.Error("the hub of a token and another one are confused")
		}
		time.Sleep(90 * time.Minute)
		synctest.Wait()
		check("flights/partitions/0", true)
		a.mu.Lock()
		if len(a.grants) != 1 {
			t.Errorf("%d grants after one has expired", len(a.grants))
		}
		a.mu.Unlock()
		time.Sleep(time.Hour)
		check("flights", false)
		put("sb://ns/", time.Hour)
		check("anything", true)
	})
}

func TestPlain(t *testing.T) {
	a := newAuthority(named(Key{Name: "root", Secret: testKey}))
	for response, want := range map[string]bool{
		"\x00root\x00" + testKey: true, "x\x00root\x00" + testKey: true, "\x00root\x00wrong": false, "\x00nobody\x00" + testKey: false,
		"\x00nobody\x00": false, "": false, "\x00root": false, "\x00root\x00" + testKey + "\x00": false,
	} {
		if err := a.plain([]byte(response)); (err == nil) != want {
			t.Errorf("%q: %v", response, err)
		}
	}
}
