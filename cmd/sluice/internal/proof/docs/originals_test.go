package docs

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/internal/proof/need"
)

// mostLines is how long the commands may be that a published sample's instructions become.
const mostLines = 10

// originals are the published systems: where a page has the commands that run their counterpart,
// and what these print, in this order.
var originals = []struct {
	name, page, heading string
	begins              string // the first command
	prints              []string
}{
	{"fixed partitions", "docs/settings.md", "A processor with a fixed number of partitions", "exec",
		[]string{"10000 records acknowledged", "none becomes a dead letter", "msg=stopped", "msg=stopped"}},
	{"SQL Server", "docs/settings.md", "A consumer that keeps its checkpoints in SQL Server", "exec",
		[]string{"3 records acknowledged", "events=3 dead_letters=1", "column delay: body.delay: is null"}},
	{"Azure Functions", "docs/settings.md", "An autoscaler of Azure Functions", "exec",
		[]string{"1000 records acknowledged", "4 of 5 required values", "1 → 2 instances: the average of orders-billing-backlog is 1000, above the upper threshold 500", "\n2\n"}},
	{"Cosmos DB", "docs/cosmos.md", "Cosmos DB", "export",
		[]string{"10000 records acknowledged", "written=10000", "0 lost, 0 duplicated, 10,000 written"}},
	{"large batches", "docs/send.md", "Sending files", "exec",
		[]string{"100000 records acknowledged"}},
	{"telemetry", "docs/audit.md", "A story that was published", "seq",
		[]string{"Sampling explains the drop"}},
}

// TestOriginals runs each of these commands in a new directory, as in a checkout.
func TestOriginals(t *testing.T) {
	need.RealTime(t)
	path := program.Path(t)
	for _, o := range originals {
		t.Run(o.name, func(t *testing.T) {
			list, err := Read(repository(t), o.page)
			if err != nil {
				t.Fatal(err)
			}
			text := ""
			for _, b := range list {
				if b.Language == "sh" && b.Heading == o.heading && strings.HasPrefix(b.Text, o.begins+" ") {
					text += b.Text
				}
			}
			if n := strings.Count(text, "\n"); n == 0 || n > mostLines {
				t.Fatalf("%s has %d lines of commands below %q, want 1 to %d", o.page, n, o.heading, mostLines)
			}
			dir := t.TempDir()
			if err := os.Symlink(filepath.Join(repository(t), "examples"), filepath.Join(dir, "examples")); err != nil {
				t.Fatal(err)
			}
			printsInOrder(t, dir, path, o.prints, "-euo", "pipefail", "-c", "trap 'kill ${!:-} 2>/dev/null || true' EXIT\n"+onFreePorts(t, text))
		})
	}
}

// onFreePorts gives the servers of a page's commands addresses that other tests do not have.
func onFreePorts(t *testing.T, text string) string {
	t.Helper()
	text = strings.ReplaceAll(text, "emulator serve ", "emulator serve --listen 127.0.0.1:0 ")
	for _, port := range []string{"5673", "5674", "8081"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		text = strings.ReplaceAll(text, "127.0.0.1:"+port, l.Addr().String())
	}
	return text
}
