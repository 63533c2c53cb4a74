package databaseurl

import (
	"net/url"
	"testing"
)

func TestCutPassword(t *testing.T) {
	for text, want := range map[string]bool{
		"mysql://u:p@host:3306/db":                               false,
		"postgres://u:p%2F%23%3F%40@host/db?sslmode=disable":     false,
		"postgres://u:p@ss@host/db":                              false, // all of it is the password
		"postgres://u@host/a%40b":                                false,
		"postgres://host/db?application_name=a@b":                false,
		"sqlserver://u:p@host?database=db&app+name=a@b":          false,
		"postgres:///db?host=/tmp":                               false,
		"mysql://u:1/secret@host/db":                             true,
		"mysql://u:1?secret@host/db":                             true,
		"mysql://u:1#secret@host/db":                             true,
		"postgres://u:p@ss/word@host/db":                         true,
		"postgres://u:p@ss?word@host/db":                         true,
		"postgres://u:p@ss#word@host/db":                         true,
		"sqlserver://u:p@ss/word@host?database=db":               true,
		"sqlserver://u:p@ss?word@host?database=db&encrypt=false": true,
		"mysql:u:p@host/db":                                      true,
	} {
		u, err := url.Parse(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := CutPassword(u); got != want {
			t.Errorf("%s: %t, want %t", text, got, want)
		}
	}
}
