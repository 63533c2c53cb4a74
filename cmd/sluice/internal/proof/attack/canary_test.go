//go:build linux

package attack

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSearch plants each secret in ways in which programs write texts.
func TestSearch(t *testing.T) {
	c := newCanaries()
	raw, err := base64.StdEncoding.DecodeString(c.key)
	if err != nil {
		t.Fatal(err)
	}
	ways := map[string]func(string) string{
		"raw":             func(s string) string { return "error: cannot connect as a:" + s + "@host" },
		"quoted":          func(s string) string { return fmt.Sprintf("%q", s) },
		"in a query":      func(s string) string { return "?" + url.Values{"password": {s}}.Encode() },
		"in a path":       func(s string) string { return (&url.URL{Path: "/a/" + s}).EscapedPath() + url.PathEscape(s) },
		"in a URL":        func(s string) string { return (&url.URL{Host: "h", User: url.UserPassword("u", s)}).String() },
		"in hex":          func(s string) string { return fmt.Sprintf("%x", s) },
		"base64 at 0":     func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) },
		"base64 at 1":     func(s string) string { return base64.StdEncoding.EncodeToString([]byte("x" + s + "yz")) },
		"base64 at 5":     func(s string) string { return base64.StdEncoding.EncodeToString([]byte("user:" + s)) },
		"base64 for URLs": func(s string) string { return base64.URLEncoding.EncodeToString([]byte("ab" + s)) },
	}
	never := func(string, string) bool { return false }
	for name, way := range ways {
		for _, secret := range []string{c.key, c.password} {
			dir := t.TempDir()
			path := filepath.Join(dir, "log")
			if err := os.WriteFile(path, []byte("one line\nanother with "+way(secret)+" in it\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			found, s, err := c.search(never, dir)
			if err != nil || len(found) == 0 || s.Files != 1 || !strings.Contains(found[0], path) {
				t.Errorf("%s: found %q in %+v, %v", name, found, s, err)
			}
			found, s, err = c.search(func(_, line string) bool { return strings.HasPrefix(line, "another") }, dir)
			if err != nil || len(found) > 0 || s.Allowed == 0 {
				t.Errorf("%s, allowed: found %q in %+v, %v", name, found, s, err)
			}
		}
	}
	dir := t.TempDir()
	text, err := json.Marshal(map[string]any{"data": raw, "like it": c.password[:len(c.password)-6] + "......", "key": c.key[1:]})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "harmless"), text[len(text)/2:], 0o644); err != nil {
		t.Fatal(err)
	}
	if found, _, err := c.search(never, dir); err != nil || len(found) > 0 {
		t.Errorf("found %q, %v", found, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "decoded"), append([]byte("key: "), raw...), 0o644); err != nil {
		t.Fatal(err)
	}
	if found, _, err := c.search(never, dir); err != nil || len(found) != 1 {
		t.Errorf("found %q, %v", found, err)
	}
}
