//go:build linux

package attack

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io/fs"
	"iter"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// canaries are secrets that must not appear in any output.
type canaries struct {
	key      string // of the hub, base64 as a connection string has it
	password string // of the database's role
	kafka    string // of the user of Kafka; empty without it
}

func newCanaries() *canaries {
	raw := make([]byte, 30)
	rand.Read(raw)
	// Characters that look different in base64, URL-escaped and in URLs.
	return &canaries{
		key:      base64.StdEncoding.EncodeToString(append(raw, 0xfb, 0xef)),
		password: "pa/ss+wo:rd@" + rand.Text() + "%=",
	}
}

// forms are the secrets in the forms in which they might be written.
func (c *canaries) forms() map[string][]byte {
	forms := map[string][]byte{}
	add := func(what, text string) {
		quoted := fmt.Sprintf("%q", text)
		forms[what] = []byte(text)
		forms[what+", quoted"] = []byte(quoted[1 : len(quoted)-1])
		forms[what+", URL-escaped"] = []byte(url.QueryEscape(text))
		forms[what+", escaped for a path"] = []byte(url.PathEscape(text))
		forms[what+", as user information"] = []byte(strings.TrimPrefix(url.UserPassword("", text).String(), ":"))
		forms[what+", in hex"] = []byte(hex.EncodeToString([]byte(text)))
		// Inside a longer text that is encoded it may begin at any of three places;
		// the characters at its ends depend on its neighbours.
		for skip := range 3 {
			for name, enc := range map[string]*base64.Encoding{"base64": base64.RawStdEncoding, "base64 for URLs": base64.RawURLEncoding} {
				padded := enc.EncodeToString(append(make([]byte, skip), text...))
				forms[fmt.Sprintf("%s, in %s at %d", what, name, skip)] = []byte(padded[[]int{0, 2, 3}[skip] : len(padded)-1])
			}
		}
	}
	add("the hub's key", c.key)
	add("the database's password", c.password)
	if c.kafka != "" {
		add("Kafka's password", c.kafka)
	}
	raw, _ := base64.StdEncoding.DecodeString(c.key) // it is ours
	forms["the hub's key, decoded"] = raw
	forms["the hub's key, decoded, in hex"] = []byte(hex.EncodeToString(raw))
	return forms
}

// readyLine allows the one line in which a hub prints its key, as it should.
func readyLine(path, line string) bool {
	return strings.HasPrefix(filepath.Base(path), "hub-") && strings.HasSuffix(path, ".out") && strings.HasPrefix(line, "ready ")
}

// searched is what a search went through.
type searched struct {
	Files   int
	Bytes   int64
	Allowed int // places that may have a secret
}

// search looks for the canaries in every file below the directories. A line of
// which allowed says so may have them.
func (c *canaries) search(allowed func(path, line string) bool, dirs ...string) (found []string, s searched, err error) {
	forms := c.forms()
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			s.Files++
			s.Bytes += int64(len(data))
			for what, form := range forms {
				for at := range places(data, form) {
					if allowed(path, lineAt(data, at)) {
						s.Allowed++
						continue
					}
					found = append(found, fmt.Sprintf("%s is in %s at byte %d", what, path, at))
					break
				}
			}
			return nil
		})
		if err != nil {
			return nil, s, fmt.Errorf("search for secrets: %w", err)
		}
	}
	slices.Sort(found)
	return found, s, nil
}

// places are where form is in data.
func places(data, form []byte) iter.Seq[int] {
	return func(yield func(int) bool) {
		for from := 0; ; {
			at := bytes.Index(data[from:], form)
			if at < 0 || !yield(from+at) {
				return
			}
			from += at + 1
		}
	}
}

// lineAt is the line that has the byte at a place.
func lineAt(data []byte, at int) string {
	line, _, _ := bytes.Cut(data[bytes.LastIndexByte(data[:at], '\n')+1:], []byte("\n"))
	return string(line)
}
