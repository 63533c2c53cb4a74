package pipeline

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
)

func TestProgressBlobs(t *testing.T) {
	with := func(file, blobs string) string {
		return strings.Replace(file, "{hub: flights, connection", "{hub: flights, progress_blobs: "+blobs+", connection", 1)
	}
	p, err := Parse("p.yaml", []byte(with(plainFile, `{container: checkpoints, connection: "${STORAGE}", every: 30s}`)), environment("STORAGE=UseDevelopmentStorage=true"))
	if err != nil {
		t.Fatal(err)
	}
	if b := p.source.(*hub).progress; b == nil || b.where != "checkpoints" || b.connection != "UseDevelopmentStorage=true" || b.every != 30*time.Second {
		t.Errorf("got %+v", b)
	}
	if g := p.source.(*hub).sdkGroup(p.Group.Name); g != (sluice.Group{Namespace: "localhost", Topic: "flights", Name: "$Default"}) {
		t.Errorf("the SDKs' names are %+v", g)
	}
	for _, c := range []struct{ file, want string }{
		{with(plainFile, "{connection: UseDevelopmentStorage=true}"), "p.yaml:2:28: source.eventhub.progress_blobs.container: is missing"},
		{with(plainFile, "{container: c, every: 1ms}"), "source.eventhub.progress_blobs.every: \"1ms\": write a duration from 1s to 1h0m0s"},
		{with(plainFile, "{container: c, prefix: sluice/}"), "p.yaml:2:59: source.eventhub.progress_blobs.prefix: unknown key"},
		{with(plainFile, "'https://a.blob.core.windows.net/c?sv=1&sig=x'"), "source.eventhub.progress_blobs: holds a secret"},
		{with(strings.NewReplacer("database: sqlite:x.db\n", "memory: {group: {hour: hour(enqueued)}, figures: {n: count}}\n", "{insert: {table: flights, create: true, columns: {n: sequence}}}", "{eventhub: {hub: next}}").Replace(plainFile), "{container: c}"), "source.eventhub.progress_blobs: cannot be combined with memory, which has no checkpoints to publish: remove it"},
	} {
		if _, err := Parse("p.yaml", []byte(c.file), environment()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got  %v\nwant %s", err, c.want)
		}
	}
}
