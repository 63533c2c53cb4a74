package emulator

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// refusal tells a client why its token isn't accepted, worded as Azure does where it is known how.
type refusal string

const (
	accepted      refusal = ""
	badSignature  refusal = "InvalidSignature: The token has an invalid signature."
	malformed     refusal = "MalformedToken: The token isn't a shared access signature with the fields sr, sig, se and skn."
	wrongAudience refusal = "InvalidAudience: The token's resource doesn't cover the audience it was put for."
)

// signature is a shared access signature taken apart.
type signature struct {
	path    string // of the resource
	signed  string // what the HMAC-SHA256 is computed over: resource and expiry as written in the token; the secret is the key's text
	mac     []byte
	expiry  time.Time
	keyName string
}

func parseSAS(token string) (s signature, ok bool) {
	text, ok := strings.CutPrefix(token, "SharedAccessSignature ")
	if !ok {
		return s, false
	}
	field := make(map[string]string)
	for pair := range strings.SplitSeq(text, "&") {
		name, value, _ := strings.Cut(pair, "=")
		field[name] = value
	}
	resource, err1 := url.QueryUnescape(field["sr"])
	mac, err2 := url.QueryUnescape(field["sig"])
	seconds, err3 := strconv.ParseInt(field["se"], 10, 64)
	var err4 error
	s.mac, err4 = base64.StdEncoding.DecodeString(mac)
	if errors.Join(err1, err2, err3, err4) != nil {
		return s, false
	}
	if !strings.Contains(resource, "://") {
		resource = "sb://" + resource
	}
	s.path, s.signed = pathOf(resource), field["sr"]+"\n"+field["se"]
	s.expiry = time.Unix(seconds, 0).UTC()
	s.keyName = field["skn"] // the client libraries write it as it is
	return s, true
}

// verify checks a shared access signature: the HMAC, the expiry, and that its resource is the audience, or above it.
func verify(keys map[string]Key, now time.Time, token, audience string) (g grant, why refusal) {
	sas, ok := parseSAS(token)
	if !ok {
		return g, malformed
	}
	key, known := keys[sas.keyName] // of an unknown name, no secret: the comparison takes as long
	mac := hmac.New(sha256.New, []byte(key.Secret))
	mac.Write([]byte(sas.signed))
	if !hmac.Equal(mac.Sum(nil), sas.mac) || !known {
		return g, badSignature
	}
	if !now.Before(sas.expiry) {
		return g, refusal(fmt.Sprintf("ExpiredToken: The token is expired. Expiration time: '%s'.", sas.expiry.Format(time.RFC3339)))
	}
	if !within(strings.ToLower(sas.path), strings.ToLower(pathOf(audience))) {
		return g, wrongAudience
	}
	return grant{rights: key.Rights, expiry: sas.expiry}, accepted
}
