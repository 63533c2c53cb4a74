package azure_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/autoscale/azure"
	"github.com/sluice-go/sluice/internal/proof/azurite"
	"github.com/sluice-go/sluice/internal/proof/need"
)

// TestAccountIsShared: three resources, each with a process of its own, in one account and
// one table. The processes are killed again and again. Each resource's log and target are
// what they would be alone, and no message was set aside.
func TestAccountIsShared(t *testing.T) {
	need.Azurite(t)
	need.RealTime(t)
	t.Parallel()
	dir := t.TempDir()
	output, err := os.Create(filepath.Join(dir, "output"))
	if err != nil {
		t.Fatal(err)
	}
	defer output.Close()
	table := fmt.Sprintf("Scaling%d", names.Add(1))
	resources := []string{"orders", "Orders", "mail"} // two differ only by case
	processes := map[string]*troupe{}
	files := map[string]journal{}
	for i, name := range resources {
		files[name] = journal(filepath.Join(dir, fmt.Sprint("journal", i)))
		processes[name] = &troupe{T: t, output: output, running: map[string]*exec.Cmd{}, env: []string{resourceVariable + "=" + name,
			tableVariable + "=" + table, accessVariable + "=" + azurite.Connection(t), fileVariable + "=" + string(files[name])}}
		processes[name].start("all")
	}
	defer func() {
		for _, p := range processes {
			for _, cmd := range p.running {
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
			}
		}
	}()

	random := need.Rand(t)
	// Each kill comes after another change of the resource, so that there is progress on a
	// busy machine too.
	const kills = 9
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	end := time.Now().Add(5 * time.Minute)
	changed := func(name string, n int) {
		for {
			done, err := files[name].changes()
			if err != nil {
				t.Fatal(err)
			}
			if len(done) >= n {
				return
			}
			<-tick.C
			if time.Now().After(end) {
				text, _ := os.ReadFile(output.Name())
				t.Fatalf("%s has %d changes, want %d; the processes say: %s", name, len(done), n, text)
			}
		}
	}
	for i := range kills {
		name := resources[i%len(resources)]
		changed(name, 1+i/len(resources))
		next := time.NewTimer(time.Duration(random.Int64N(int64(time.Second))))
		<-next.C
		processes[name].kill("all")
		processes[name].start("all")
	}
	for _, name := range resources {
		changed(name, 5)
	}
	for _, p := range processes {
		p.kill("all")
		delete(p.running, "all")
		p.start("acting")
	}
	for _, name := range resources {
		judge(t, settled(t, table, name, output.Name()), name, files[name], kills)
		for _, kind := range []string{autoscale.MetricsQueue, autoscale.ActionsQueue, autoscale.ReportsQueue} {
			q, err := azure.OpenQueue(t.Context(), azure.QueuePrefix(name)+kind, &azure.Config{Connection: azurite.Connection(t)})
			if err != nil {
				t.Fatal(err)
			}
			aside, err := q.DeadLetters(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if len(aside) > 0 {
				t.Errorf("%s: %d messages of %s were set aside: %s: %s", name, len(aside), kind, aside[0].Reason, aside[0].Body)
			}
		}
	}
}
