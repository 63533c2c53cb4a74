// Package databaseurl looks at the URLs of databases.
package databaseurl

import (
	"net/url"
	"strings"
)

// CutPassword reports whether the password of a URL seems to end before its end, because of a
// special character that is not escaped: the rest would be taken for a host, a database or a
// parameter, and shown in errors.
func CutPassword(u *url.URL) bool {
	parameter, _, _ := strings.Cut(u.RawQuery, "=")
	return u.Fragment != "" || strings.Contains(u.Opaque+u.EscapedPath()+parameter, "@")
}
