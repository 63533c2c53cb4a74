package main

import (
	"strings"
	"testing"
)

// A key on the command line is read as it was written, or refused in one line
// that does not repeat it.
func FuzzKeys(f *testing.F) {
	f.Add("root=U0VDUkVU", "listener=TElTVEVO:listen,send")
	f.Add("root=SECRET!", "")
	f.Add("root", "=SECRET")
	f.Add("a=U0VDUkVU:SECRET", "a=U0VDUkVU")
	f.Fuzz(func(t *testing.T, first, second string) {
		keys, err := parseKeys([]string{first, second})
		if err == nil {
			for i, text := range []string{first, second} {
				if k := keys[i]; !strings.HasPrefix(text, k.Name+"="+k.Secret) || k.Name == "" || k.Secret == "" {
					t.Fatalf("%q became %+v", text, k)
				}
			}
			return
		}
		for _, text := range []string{first, second} {
			name, secret, _ := strings.Cut(text, "=")
			if len(secret) > 20 && strings.Contains(err.Error(), secret) && !strings.Contains(name, secret) {
				t.Fatalf("%q: the key is told: %v", text, err)
			}
		}
	})
}
