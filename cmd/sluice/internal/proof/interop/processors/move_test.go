package processors

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/sluice-go/sluice/cmd/sluice/internal/proof/interop"
	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/internal/proof/asazure"
	"github.com/sluice-go/sluice/internal/proof/azurite"
	"github.com/sluice-go/sluice/internal/proof/need"
)

const (
	eventsBefore = 2000 // events that are sent before the move
	eventsAfter  = 100  // and after the way back
	every        = 10   // a processor stores a checkpoint after so many events of a partition
)

var partitions = []string{"0", "1"}

// languages are the programs.
var languages = map[string]func(t *testing.T) *exec.Cmd{
	"JavaScript": func(t *testing.T) *exec.Cmd { return interop.Command(t, interop.Node, "processor.js") },
	"Python":     func(t *testing.T) *exec.Cmd { return interop.Command(t, interop.Python, "processor.py") },
	"Java":       func(t *testing.T) *exec.Cmd { return interop.JavaCommand(t, "java", "Processor") },
}

// TestMove: a processor of an official client is killed amid its events, sluice move takes over its
// checkpoints, the pipeline goes on, and after the way back the processor goes on after the
// pipeline. No event is without effect, and the pipeline repeats those alone that the processor has
// handled after its last checkpoint.
func TestMove(t *testing.T) {
	need.Azurite(t)
	need.RealTime(t)
	for language, program := range languages {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			// The program is compiled, and the test skipped, before anything starts.
			first, second := program(t), program(t)
			w := newWorld(t)
			w.send(eventsBefore)
			killed := w.killAmid(first)
			w.there(killed)
			w.back(second)
		})
	}
}

// world is a hub with its processor's checkpoints, and a pipeline that takes over.
type world struct {
	*sluice
	environment []string         // of the processor
	ends        map[string]int64 // by partition: its last event at the move
}

func newWorld(t *testing.T) *world {
	t.Helper()
	storage := azurite.New(t, nil)
	c, err := container.NewClientFromConnectionString(storage.ConnectionString(), "checkpoints", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	hub := emulator.Hub{Name: "flights", Partitions: len(partitions), ConsumerGroups: []string{"sluice-audit"}}
	srv, err := emulator.Start([]emulator.Hub{hub}, &emulator.Config{AsAzure: asazure.FreshRuntime()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := srv.Close(); err != nil {
			t.Errorf("close the emulator: %v", err)
		}
	})
	return &world{newSluice(t, srv.ConnectionString(), storage.ConnectionString()), []string{"HUB=" + srv.ConnectionString(), "STORAGE=" + storage.ConnectionString()}, map[string]int64{}}
}

func (w *world) process(cmd *exec.Cmd) *processor {
	if cmd.Env == nil {
		cmd.Env = cmd.Environ()
	}
	cmd.Env = append(cmd.Env, w.environment...)
	return process(w.t, cmd)
}

// killAmid kills a processor amid its events, once it has a checkpoint of each partition. While it
// runs, nothing is moved.
func (w *world) killAmid(cmd *exec.Cmd) *processor {
	w.t.Helper()
	p := w.process(cmd)
	atLeast := eventsBefore/10 + need.Rand(w.t).IntN(eventsBefore/2)
	p.await("got so far", func() bool { return len(p.stored) == len(partitions) && p.total() >= atLeast })
	p.kill()
	if n := p.total(); n >= eventsBefore {
		w.t.Fatalf("the processor had handled all %d events when it was killed", n)
	}
	code, _, errs := w.run("move", "--config", config(), "--every", "1s", "--from-blob", "checkpoints", "--apply")
	if code != 1 || !strings.Contains(errs, "the other consumer still runs: 2 partitions are read by ") {
		w.t.Errorf("just after its death: exit code %d, %s", code, errs)
	}
	return p
}

// there moves to the pipeline, which handles the rest.
func (w *world) there(old *processor) {
	w.t.Helper()
	seams := w.move("--from-blob", "checkpoints", "--within", "3m")
	w.must("run", config(), "--until-caught-up")
	w.must("audit", "hub", "--config", config()) // fails if something is lost or doubled
	rows, repeated, distinct := w.rows(), 0, 0
	for _, partition := range partitions {
		s, handled, new := seams[partition], old.handled[partition], rows[partition]
		inOrder(w.t, "the processor, partition "+partition, handled, 0)
		inOrder(w.t, "the pipeline, partition "+partition, new, s.Start)
		if s.Old == nil || s.Verdict != "proved" {
			w.t.Fatalf("partition %s: the seam is %s: %v", partition, s.Verdict, s.Why)
		}
		// Its last checkpoint may have been stored without its knowledge.
		if stored := old.stored[partition]; *s.Old != stored && *s.Old != stored+every || s.Start != *s.Old+1 {
			w.t.Errorf("partition %s: moved from %d to %d, and the processor's last checkpoint is %d", partition, *s.Old, s.Start, stored)
		}
		again := len(handled) - int(s.Start)
		if again < 0 || again > every {
			need.Verdict(w.t)
			w.t.Errorf("partition %s: the processor has handled %d events, and the pipeline begins at %d", partition, len(handled), s.Start)
		}
		repeated += again
		w.ends[partition] = s.Start + int64(len(new)) - 1
		distinct += min(int(s.Start), len(handled)) + len(new)
		w.t.Logf("partition %s: %d events handled by the processor, checkpoint at %d, %d by the pipeline, %d of them repeated", partition, len(handled), *s.Old, len(new), again)
	}
	if distinct != eventsBefore {
		need.Verdict(w.t)
		w.t.Errorf("%d of %d events have an effect", distinct, eventsBefore)
	}
	w.t.Logf("killed after %d of %d events: %d lost, %d repeated", old.total(), eventsBefore, eventsBefore-distinct, repeated)
}

// back moves back to the processor, which goes on with the next event of each partition.
func (w *world) back(cmd *exec.Cmd) {
	w.t.Helper()
	for partition, s := range w.move("--back", "--to-blob", "checkpoints") {
		if s.Verdict != "proved" || s.Start != w.ends[partition]+1 {
			w.t.Errorf("back, partition %s: %+v", partition, s)
		}
	}
	w.send(eventsAfter)
	p := w.process(cmd)
	p.await("handled the new events", func() bool { return p.total() >= eventsAfter })
	p.kill()
	for _, partition := range partitions {
		inOrder(w.t, "the processor after the way back, partition "+partition, p.handled[partition], w.ends[partition]+1)
	}
	if n := p.total(); n != eventsAfter {
		need.Verdict(w.t)
		w.t.Errorf("after the way back the processor has handled %d events of %d", n, eventsAfter)
	}
	w.t.Logf("after the way back: %d of %d events handled, from %d and %d", p.total(), eventsAfter, p.handled["0"][0], p.handled["1"][0])
}

// inOrder checks that events are handled once each, in their order, from first on.
func inOrder(t *testing.T, who string, list []int64, first int64) {
	t.Helper()
	for i, n := range list {
		if n != first+int64(i) {
			need.Verdict(t)
			t.Fatalf("%s: event %d where %d is next", who, n, first+int64(i))
		}
	}
	if len(list) == 0 {
		t.Fatalf("%s: no event", who)
	}
}
