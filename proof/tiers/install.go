//go:build unix

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-go/sluice/internal/proof/need"
)

// optional things need an archive that not every machine has.
var optional = []string{"sqlserver", "kubernetes"}

// install installs what the stages need, all at once, since much of it waits for the network. A
// stage begins once its own needs are there. What this machine cannot have is left out: a script
// that succeeds without installing says why in its last line.
func (r *run) install(ctx context.Context) {
	names := r.needs()
	if len(names) == 0 {
		return
	}
	const name = "install"
	began, o := time.Now(), &outcome{}
	r.mu.Lock()
	r.outcomes[name] = o
	r.mu.Unlock()
	r.say("%-16s started: %s", name, strings.Join(names, ", "))
	ctx, cancel := context.WithTimeoutCause(ctx, time.Hour, fmt.Errorf("not installed within an hour")) // helm and kubectl are compiled, from the CPUs that the stages leave
	defer cancel()
	var all sync.WaitGroup
	for _, what := range names {
		all.Go(func() {
			defer close(r.installed[what])
			thing, _ := need.Lookup(what)
			s := stage{name: name}
			if what == "kubernetes" { // compiles helm and kubectl for minutes, and is needed last
				s.lane = computing
			}
			p := r.process(s, []string{thing.Install})
			var out bytes.Buffer
			p.Stdout, p.Stderr = &out, &out
			err := runGroup(ctx, p)
			_ = os.WriteFile(filepath.Join(r.dir, "install-"+what+".log"), out.Bytes(), 0o644)
			said := lastLines(strings.TrimSpace(out.String()), 1)
			r.mu.Lock()
			if err != nil {
				o.red = append(o.red, fmt.Sprintf("%s: %v: %s", thing.Install, err, said))
				r.missing[what] = "could not be installed"
			} else if !thing.Found() {
				r.missing[what] = said
				if !slices.Contains(optional, what) {
					o.red = append(o.red, fmt.Sprintf("%s: has not installed %s: %s", thing.Install, thing.Title, said))
				}
			}
			r.mu.Unlock()
			if err != nil {
				r.say("%-16s RED %s: %v\n%s", name, thing.Install, err, lastLines(out.String(), 40))
			} else {
				r.say("%-16s %s", name, what)
			}
		})
	}
	all.Wait()
	slices.Sort(o.red)
	o.took = time.Since(began)
	r.say("%-16s %s, %.0f s", name, o.colour(), o.took.Seconds())
}
