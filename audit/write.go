package audit

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"strings"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/humanize"
)

// countJSON is a [Count] in a JSON report.
type countJSON struct {
	Held    int64 `json:"held"`
	Written int64 `json:"written"`
	Letters int64 `json:"dead_letters"`
	Waiting int64 `json:"waiting"`
	Skipped int64 `json:"skipped"`
	Repeats int64 `json:"repeats"`
	Unclear int64 `json:"unclear"`
	Ahead   int64 `json:"ahead"`
	Past    int64 `json:"past_retention"`
	Missing int64 `json:"missing"`
	Doubled int64 `json:"doubled"`
	Expired int64 `json:"expired"`
	Stray   int64 `json:"stray"`

	Unmatched   int64            `json:"unmatched"`
	Unmatchable int64            `json:"unmatchable"`
	Unselected  int64            `json:"unselected"`
	Earlier     int64            `json:"earlier"`
	Removed     int64            `json:"removed"`
	Why         map[string]int64 `json:"unclear_why,omitempty"`
}

func (c *Count) json() countJSON {
	return countJSON{
		c.Held, c.Written, c.DeadLetters, c.Waiting, c.Skipped, c.Deduplicated, c.Unclear, c.Ahead, c.PastRetention,
		c.Faults[Lost], c.Faults[Duplicated], c.Faults[Expired], c.Faults[Stray],
		c.Unmatched, c.Unmatchable, c.Unselected, c.Earlier, c.Removed, c.UnclearWhy,
	}
}

type binJSON struct {
	Start time.Time `json:"start"`
	countJSON
}

type partitionJSON struct {
	ID         string `json:"partition"`
	First      int64  `json:"first"`
	Last       int64  `json:"last"`
	Checkpoint int64  `json:"checkpoint"`
	// Began is how the beginning came to be, and BeganAfter the event before it; both are missing
	// if that is not recorded.
	Began      driver.How `json:"began,omitempty"`
	BeganAfter *int64     `json:"began_after,omitempty"`
	Doubt      Doubt      `json:"doubt,omitempty"`
	countJSON
	Bins []binJSON `json:"bins"`
}

type faultJSON struct {
	Kind      FaultKind  `json:"kind"`
	Partition string     `json:"partition"`
	First     int64      `json:"first"`
	Last      int64      `json:"last"`
	From      *time.Time `json:"enqueued_from,omitempty"`
	Until     *time.Time `json:"enqueued_until,omitempty"`
}

// WriteJSON writes the report as JSON.
func (r *Report) WriteJSON(w io.Writer) error {
	data := struct {
		Hub        string          `json:"hub"`
		Headline   string          `json:"headline"`
		Group      string          `json:"consumer_group"`
		Exact      bool            `json:"exact"`
		Began      time.Time       `json:"began"`
		Seconds    float64         `json:"seconds"`
		Total      countJSON       `json:"total"`
		Partitions []partitionJSON `json:"partitions"`
		Faults     []faultJSON     `json:"faults"`
		Unnamed    int64           `json:"events_with_faults_not_named"`
	}{
		Hub: r.Topic.Group.Topic, Headline: r.Headline(), Group: r.Topic.Group.Name, Exact: r.Exact(), Began: r.Began.UTC(), Seconds: r.Took.Seconds(),
		Total: r.Total.json(), Faults: []faultJSON{}, Unnamed: r.UnlistedEvents,
	}
	for i := range r.Partitions {
		p := &r.Partitions[i]
		out := partitionJSON{ID: p.ID, First: p.First, Last: p.Last, Checkpoint: p.Checkpoint, Began: p.Began.How, Doubt: p.Doubt, countJSON: p.Count.json(), Bins: []binJSON{}}
		if p.Began.Known() {
			out.BeganAfter = &p.Began.After
		}
		for _, b := range p.Bins {
			out.Bins = append(out.Bins, binJSON{b.Start.UTC(), b.Count.json()})
		}
		data.Partitions = append(data.Partitions, out)
	}
	for _, f := range r.Faults {
		out := faultJSON{Kind: f.Kind, Partition: f.Partition, First: f.First, Last: f.Last}
		if !f.From.IsZero() {
			out.From, out.Until = &f.From, &f.Until
		}
		data.Faults = append(data.Faults, out)
	}
	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	if err := out.Encode(data); err != nil {
		return fmt.Errorf("report as JSON: %w", err)
	}
	return nil
}

//go:embed report.html
var pageHTML string

var pageTemplate = template.Must(template.New("report").Funcs(template.FuncMap{
	"share": func(part, whole int64) float64 { return 100 * float64(part) / float64(max(whole, 1)) },
	"at": func(t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return t.UTC().Format("2006-01-02 15:04:05")
	},
	"began": func(p Partition) string {
		if !p.Began.Known() {
			return "unknown"
		}
		return fmt.Sprintf("%d %s", max(p.Began.After+1, 0), p.Began.How)
	},
	"count": func(c Count, kind string) int64 { return c.Faults[FaultKind(kind)] },
	"faults": func(c Count) (n int64) {
		for _, f := range c.Faults {
			n += f
		}
		return n
	},
}).Parse(pageHTML))

// shownBins is the number of bins on a page, the newest ones.
const shownBins = 200

// WriteHTML writes the report as one HTML page without external resources.
func (r *Report) WriteHTML(w io.Writer) error {
	bins, more := r.bins()
	return pageTemplate.Execute(w, struct {
		*Report
		Headline string
		Bins     []Bin
		MoreBins int
	}{r, r.Headline(), bins, more})
}

// Headline returns the result in one sentence.
func (r *Report) Headline() string {
	c := &r.Total
	if r.Effect != "" {
		return r.fullHeadline()
	}
	if r.Exact() {
		return r.exactHeadline()
	}
	if doubt := r.doubts(); doubt != "" && r.Undecided() {
		return fmt.Sprintf("Can't tell: %s. No event is known to be lost or duplicated.", doubt)
	}
	if r.Undecided() {
		return fmt.Sprintf("Can't tell for %s of %s events: no other event is lost or duplicated.", humanize.Count(c.Unclear), humanize.Count(c.Held+c.UnclearWhy[removedWithout]))
	}
	text := "Not exact:"
	for i, kind := range FaultKinds {
		if n := c.Faults[kind]; n > 0 {
			if i > 0 && text[len(text)-1] != ':' {
				text += ","
			}
			text += fmt.Sprintf(" %s %s", humanize.Count(n), kind)
		}
	}
	text = fmt.Sprintf("%s, of %s events", text, humanize.Count(c.Held))
	if doubt := r.doubts(); doubt != "" {
		text += "; can't tell of others: " + doubt
	}
	return text + "."
}

func (r *Report) exactHeadline() string {
	c := &r.Total
	var unchecked, removed string
	if c.Skipped > 0 {
		unchecked = humanize.Count(c.Skipped) + " before the beginning, "
	}
	if c.Unselected > 0 {
		unchecked += humanize.Count(c.Unselected) + " not selected, "
	}
	if c.Removed > 0 {
		removed = r.removed() + " and not checked"
	}
	return fmt.Sprintf("Nothing lost, nothing duplicated: %s, %s%s written, %s, %s waiting%s.", humanize.Plural(c.Held, "event", "events"),
		unchecked, humanize.Count(c.Written), humanize.Plural(c.DeadLetters, "dead letter", "dead letters"), humanize.Count(c.Waiting), removed)
}

// removed says how many events were not checked because the log no longer has them.
func (r *Report) removed() string {
	upTo := ""
	if r.Topic.Sparse {
		upTo = "up to "
	}
	return fmt.Sprintf("; %s%s more removed by retention", upTo, humanize.Count(r.Total.Removed))
}

// doubts says which partitions are in doubt and why; empty if none is.
func (r *Report) doubts() string {
	var all []string
	for i := range r.Partitions {
		if p := &r.Partitions[i]; p.Doubt != "" {
			all = append(all, fmt.Sprintf("partition %s %s", p.ID, p.Doubt))
		}
	}
	if more := len(all) - shownRuns; more > 0 {
		all = append(all[:shownRuns], fmt.Sprintf("%s more", humanize.Plural(int64(more), "partition", "partitions")))
	}
	return strings.Join(all, "; ")
}

// bins returns the newest bins, summed over all partitions, and how many older ones there are.
func (r *Report) bins() (newest []Bin, more int) {
	var list []Bin
	for i := range r.Partitions {
		list = merge(list, r.Partitions[i].Bins)
	}
	more = max(0, len(list)-shownBins)
	return list[more:], more
}

// merge adds up two lists of bins, each sorted by time.
func merge(a, b []Bin) []Bin {
	var list []Bin
	for len(a)+len(b) > 0 {
		switch {
		case len(b) == 0 || len(a) > 0 && a[0].Start.Before(b[0].Start):
			list, a = append(list, a[0]), a[1:]
		case len(a) == 0 || b[0].Start.Before(a[0].Start):
			list, b = append(list, b[0]), b[1:]
		default:
			both := Bin{Start: a[0].Start}
			both.add(&a[0].Count)
			both.add(&b[0].Count)
			list, a, b = append(list, both), a[1:], b[1:]
		}
	}
	return list
}
