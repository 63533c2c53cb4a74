package connector

import (
	"regexp"
	"strings"

	"github.com/sluice-go/sluice/cmd/sluice/internal/newfile"
)

// reference is a value that Kafka Connect takes from elsewhere: ${file:/path:key}, ${env:NAME},
// ${provider:name/key}.
var reference = regexp.MustCompile(`\$\{([^{}]*)\}`)

// isVariable reports whether a value is one reference and nothing else.
func isVariable(text string) bool {
	return reference.FindString(text) == text && text != ""
}

// variables replaces references by environment variables, and escapes what else looks like one.
func variables(text string) string {
	var b strings.Builder
	for {
		at := reference.FindStringSubmatchIndex(text)
		if at == nil {
			b.WriteString(strings.ReplaceAll(text, "${", "$${"))
			return b.String()
		}
		b.WriteString(strings.ReplaceAll(text[:at[0]], "${", "$${"))
		b.WriteString("${" + variable(text[at[2]:at[3]]) + "}")
		text = text[at[1]:]
	}
}

var notInVariable = regexp.MustCompile(`[^A-Z0-9]+`)

// variable names the environment variable that takes the place of a reference.
func variable(inner string) string {
	if i := strings.LastIndex(inner, ":"); i >= 0 {
		inner = inner[i+1:]
	}
	name := strings.Trim(notInVariable.ReplaceAllString(strings.ToUpper(inner), "_"), "_")
	if name == "" || name[0] >= '0' && name[0] <= '9' {
		name = "CONNECT_" + name
	}
	const most = 60
	return strings.TrimRight(name[:min(len(name), most)], "_")
}

// outside names a reference for a user, without what it holds.
func outside(text string) string { return named(text) }

// named is a name from the configuration in a line of text.
func named(text string) string { return newfile.Comment(text, 60) }
