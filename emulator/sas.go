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

// tokenError is the reason why a token isn't accepted, in Azure's words as far as they are
// known.
type tokenError string

const (
	accepted      tokenError = ""
	badSignature  tokenError = "InvalidSignature: The token has an invalid signature."
	malformed     tokenError = "MalformedToken: The token isn't a shared access signature with the fields sr, sig, se and skn."
	wrongAudience tokenError = "InvalidAudience: The token's resource doesn't cover the audience it was put for."
)

const sasPrefix = "SharedAccessSignature "

// signature is a parsed shared access signature.
type signature struct {
	path    string // of the resource
	signed  string // the signed text: resource and expiry as written in the token
	mac     []byte
	expiry  time.Time
	keyName string
}

func parseSAS(token string) (s signature, ok bool) {
	text, ok := strings.CutPrefix(token, sasPrefix)
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
	s.keyName = field["skn"] // not escaped by the client libraries
	return s, true
}

// verify checks a shared access signature: the HMAC-SHA256, whose secret is the key's
// text; the expiry; and that its resource is the audience or above it.
func verify(keys map[string]Key, now time.Time, token, audience string) (g grant, why tokenError) {
	sas, ok := parseSAS(token)
	if !ok {
		return g, malformed
	}
	key, known := keys[sas.keyName] // an unknown name has an empty secret, so that the comparison takes as long
	mac := hmac.New(sha256.New, []byte(key.Secret))
	mac.Write([]byte(sas.signed))
	if !hmac.Equal(mac.Sum(nil), sas.mac) || !known {
		return g, badSignature
	}
	if !now.Before(sas.expiry) {
		return g, tokenError(fmt.Sprintf("ExpiredToken: The token is expired. Expiration time: '%s'.", sas.expiry.Format(time.RFC3339)))
	}
	if !covers(strings.ToLower(sas.path), strings.ToLower(pathOf(audience))) {
		return g, wrongAudience
	}
	return grant{rights: key.Rights, expiry: sas.expiry}, accepted
}
