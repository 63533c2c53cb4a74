//go:build azurite

package azure_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/autoscale/azure"
	"github.com/sluice-go/sluice/internal/proof/azurite"
)

// TestAccountIsShared: three resources, each with a process of its own, in one account and
// one table. The processes are killed again and again. Each resource's log and target are
// what they would be alone, and no message was set aside.
func TestAccountIsShared(t *testing.T) {
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

	least := func() int {
		n := 1 << 30
		for _, file := range files {
			done, err := file.changes()
			if err != nil {
				t.Fatal(err)
			}
			n = min(n, len(done))
		}
		return n
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	kills, pause := 0, 300*time.Millisecond
	for began := time.Now(); kills < 6 || least() < 5; kills++ {
		if time.Since(began) > 5*time.Minute {
			t.Fatalf("%d changes at least, want 5", least())
		}
		next := time.NewTimer(pause + time.Duration(random.Int64N(int64(4*pause))))
		<-next.C
		pause += pause / 10 // so that there is progress on a busy machine
		p := processes[resources[random.IntN(len(resources))]]
		p.kill("all")
		p.start("all")
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
