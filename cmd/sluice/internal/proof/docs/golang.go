package docs

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// imports has the path of each package that a block may name without importing it.
var imports = map[string]string{
	"azcore": "github.com/Azure/azure-sdk-for-go/sdk/azcore", "azidentity": "github.com/Azure/azure-sdk-for-go/sdk/azidentity",
	"pgx":     "github.com/jackc/pgx/v5",
	"context": "context", "errors": "errors", "fmt": "fmt", "http": "net/http", "json": "encoding/json",
	"log": "log", "os": "os", "signal": "os/signal", "slog": "log/slog", "sql": "database/sql",
	"strings": "strings", "syscall": "syscall", "testing": "testing", "time": "time", "iter": "iter",
}

// ours are the packages of the module whose names are the ends of their paths.
var ours = []string{"driver", "eventhub", "kafka", "pgstore", "sqlstore", "blobstore", "cosmos", "sender", "sender/kafkasender",
	"webhook", "outbox", "sluiceotel", "health", "sluicetest", "storetest", "pipeline", "pipeline/web", "audit", "emulator"}

// prelude declares what blocks use and the text around them explains.
var prelude = []struct{ name, declaration string }{
	{"ctx", "var ctx context.Context"},
	{"t", "var t *testing.T"},
	{"credential", "var credential azcore.TokenCredential"},
	{"hub", "var hub *sender.EventHub"},
	{"messages", "var messages iter.Seq[sender.Message]"},
	{"source", "var source *eventhub.Source"},
	{"store", "var store *pgstore.Store"},
	{"leases", "var leases driver.LeaseStore"},
	{"delivery", "var delivery sluice.Delivery"},
	{"metrics", "var metrics *sluiceotel.Observer"},
	{"handler", "var handler sluice.Handler[pgx.Tx]"},
	{"apply", "var apply func(context.Context, pgx.Tx, *sluice.Event) error"},
	{"Order", "type Order struct { ID string; Total float64 }"},
}

var (
	qualified = regexp.MustCompile(`\b([a-z][a-zA-Z0-9]*)\.[A-Z]`)
	declares  = regexp.MustCompile(`(?m)^([\w, ]+?) :=`)
	text      = regexp.MustCompile("`[^`]*`|\"(?:[^\"\\\\\n]|\\\\.)*\"|//[^\n]*")
)

// Program returns a file of package name that compiles if the block does: the block as it is, if it
// is a file, else its declarations, or a function of its statements. Lines of "..." stand for what the
// block leaves out.
func Program(b Block, name string) string {
	code := regexp.MustCompile(`(?m)^\s*(\.\.\.|…)$`).ReplaceAllString(b.Text, "")
	if strings.HasPrefix(code, "package ") || strings.Contains(code, "\npackage ") {
		return regexp.MustCompile(`(?m)^package \w+`).ReplaceAllString(code, "package "+name)
	}
	declared := map[string]bool{}
	body := code
	if !regexp.MustCompile(`(?m)^(func|type) [\w(]`).MatchString(code) {
		for _, m := range declares.FindAllStringSubmatch(code, -1) {
			for v := range strings.SplitSeq(m[1], ",") {
				if v = strings.TrimSpace(v); v != "_" {
					declared[v] = true
				}
			}
		}
		used := strings.Join(slices.Sorted(maps.Keys(declared)), ", ")
		if used != "" {
			used = "\n_ = []any{" + used + "}\n"
		}
		body = "func _() {\n" + code + used + "}\n"
	}
	bare := text.ReplaceAllString(code, "")
	var before strings.Builder
	for _, p := range prelude {
		if !declared[p.name] && !strings.Contains(bare, "type "+p.name+" ") && regexp.MustCompile(`(^|[^.\w])`+p.name+`\b[^:]`).MatchString(bare) {
			before.WriteString(p.declaration + "\n")
		}
	}
	paths := map[string]bool{}
	for _, m := range qualified.FindAllStringSubmatch(bare+before.String(), -1) {
		if path, ok := imports[m[1]]; ok {
			paths[path] = true
		}
		if m[1] == "sluice" {
			paths["github.com/sluice-go/sluice"] = true
		}
		for _, p := range ours {
			if p == m[1] || strings.HasSuffix(p, "/"+m[1]) {
				paths["github.com/sluice-go/sluice/"+p] = true
			}
		}
	}
	var head strings.Builder
	fmt.Fprintf(&head, "package %s\n\n", name)
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		fmt.Fprintf(&head, "import %q\n", path)
	}
	return fmt.Sprintf("%s\n%s\n//line %s:%d\n%s", head.String(), before.String(), b.File, b.Line-1, body)
}
