//go:build unix

package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/sluice-go/sluice/cmd/sluice/internal/proof/measure"
)

// report holds all that was measured.
type report struct {
	Machine struct {
		Processor  string `json:"processor,omitempty"`
		CPUs       int    `json:"cpus"`
		System     string `json:"system"`
		Go         string `json:"go"`
		PostgreSQL string `json:"postgresql"`
		// Load is the load average of the last minute before the run: what else the
		// machine does.
		Load  string `json:"load_before"`
		Began string `json:"began"`
	} `json:"machine"`
	Body       int       `json:"body_bytes"`
	Partitions int       `json:"partitions"`
	Results    []*result `json:"results"`
}

// result is what was measured of a peer.
type result struct {
	*peer
	PerSecond float64  `json:"median_events_per_second"`
	OfLoop    float64  `json:"median_ratio_to_loop,omitempty"`
	OfSluice  float64  `json:"median_ratio_of_sluice_to_it,omitempty"` // how many times as fast Sluice is
	Runs      []*speed `json:"runs,omitempty"`
	Killed    *killed  `json:"killed,omitempty"`
}

func newReport() *report {
	r := &report{Body: bodySize, Partitions: partitions}
	m := &r.Machine
	m.Processor, m.CPUs, m.System, m.Go = measure.Processor(), runtime.NumCPU(), runtime.GOOS+"/"+runtime.GOARCH, runtime.Version()
	m.Began = time.Now().UTC().Format(time.DateOnly)
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		m.Load, _, _ = strings.Cut(string(load), " ")
	}
	return r
}

func (r *report) find(p *peer) *result {
	i := slices.IndexFunc(r.Results, func(res *result) bool { return res.peer == p })
	if i < 0 {
		i = len(r.Results)
		r.Results = append(r.Results, &result{peer: p})
	}
	return r.Results[i]
}

func (r *report) addSpeed(p *peer, s *speed) {
	res := r.find(p)
	res.Runs = append(res.Runs, s)
	r.compare()
}

func (r *report) addKilled(p *peer, k *killed) { r.find(p).Killed = k }

// compare computes the medians.
func (r *report) compare() {
	for _, res := range r.Results {
		res.PerSecond = res.median(func(s *speed) float64 { return s.PerSecond })
		for _, other := range r.Results {
			switch other.Name {
			case loopPeer:
				res.OfLoop = ratio(res, other)
			case sluicePeer:
				res.OfSluice = ratio(other, res)
			}
		}
	}
}

// ratio is the median of the ratios of two peers' speeds, round by round.
func ratio(of, to *result) float64 {
	var ratios []float64
	for _, a := range of.Runs {
		for _, b := range to.Runs {
			if a.Round == b.Round {
				ratios = append(ratios, a.PerSecond/b.PerSecond)
			}
		}
	}
	return measure.Median(ratios)
}

func (res *result) median(of func(*speed) float64) float64 {
	list := make([]float64, len(res.Runs))
	for i, s := range res.Runs {
		list[i] = of(s)
	}
	return measure.Median(list)
}

// print writes tables in Markdown, and how each peer ran.
func (r *report) print(w io.Writer) {
	r.printTables(w)
	r.printSources(w)
}

func (r *report) printTables(w io.Writer) {
	m := r.Machine
	fmt.Fprintf(w, "%d CPUs (%s, %s), %s, PostgreSQL %s, load average before %s, %s.\n", m.CPUs, m.Processor, m.System, m.Go, m.PostgreSQL, m.Load, m.Began)
	r.printSpeed(w)
	r.printKilled(w)
}

func (r *report) printSpeed(w io.Writer) {
	head := "\n| | rounds | events/s | of the loop | Sluice is so many times as fast | CPU µs an event: consumer | database | broker | all | rows a transaction | peak RSS | how it works |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|\n"
	for _, res := range r.Results {
		if len(res.Runs) == 0 {
			continue
		}
		fmt.Fprint(w, head)
		head = ""
		fmt.Fprintf(w, "| %s | %d | %s | %s | %s | %.1f | %.1f | %.1f | **%.1f** | %.0f | %.0f MB | %s |\n", res.title(), len(res.Runs),
			measure.Thousands(res.PerSecond), times(res.OfLoop), times(res.OfSluice),
			res.median(func(s *speed) float64 { return s.CPU }), res.median(func(s *speed) float64 { return s.DatabaseCPU }),
			res.median(func(s *speed) float64 { return s.BrokerCPU }), res.median(func(s *speed) float64 { return s.CPU + s.DatabaseCPU + s.BrokerCPU }),
			res.median(func(s *speed) float64 { return float64(s.Rows) / float64(s.Transactions) }),
			res.median(func(s *speed) float64 { return float64(s.PeakRSS) / 1e6 }), res.links())
	}
}

func (r *report) printKilled(w io.Writer) {
	head := "\n| | promises | kills | committed events | lost | doubled | rows of aborted transactions | slowest restart to the first row |\n|---|---|---:|---:|---:|---:|---:|---:|\n"
	for _, res := range r.Results {
		if k := res.Killed; k != nil {
			fmt.Fprint(w, head)
			head = ""
			fmt.Fprintf(w, "| %s | %s | %d | %d | %d | %d | %d | %.1f s |\n", res.title(), res.Promise, k.Kills, k.Events, k.Lost, k.Doubled, k.Aborted, k.Back)
		}
	}
}

// times is a ratio, nothing if there is none.
func times(ratio float64) string {
	if ratio == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f", ratio)
}

// The comments between which a text has the tables.
const (
	tablesBegin = "<!-- tables of make bench-peers: begin -->\n"
	tablesEnd   = "<!-- tables of make bench-peers: end -->\n"
)

// replaceTables puts the tables into a text, in place of those that it has.
func (r *report) replaceTables(text []byte) ([]byte, error) {
	before, rest, began := bytes.Cut(text, []byte(tablesBegin))
	_, after, ended := bytes.Cut(rest, []byte(tablesEnd))
	if !began || !ended {
		return nil, fmt.Errorf("the text has no lines %q and %q", strings.TrimSpace(tablesBegin), strings.TrimSpace(tablesEnd))
	}
	var tables bytes.Buffer
	r.printTables(&tables)
	return slices.Concat(before, []byte(tablesBegin), tables.Bytes(), []byte(tablesEnd), after), nil
}

// links are to the files that say how the peer works, as docs/performance.md names them.
func (p *peer) links() string {
	var list []string
	for _, name := range p.Source {
		list = append(list, "["+path.Base(name)+"](../cmd/sluice/internal/proof/peers/"+name+")")
	}
	return strings.Join(list, ", ")
}

func (res *result) title() string {
	if res.Version == "" {
		return res.Name
	}
	return res.Name + " (" + res.Version + ")"
}

// printSources writes how each peer ran, with its configuration.
func (r *report) printSources(w io.Writer) {
	for _, res := range r.Results {
		fmt.Fprintf(w, "\n%s: `%s`\n", res.title(), strings.Join(res.Command, " "))
		for _, name := range res.Source {
			if data, err := configs.ReadFile(name); err == nil {
				fmt.Fprintf(w, "\n```\n%s```\n", data)
			}
		}
	}
}
