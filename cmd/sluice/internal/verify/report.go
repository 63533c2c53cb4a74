package verify

import (
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Exit codes of the command.
const (
	ExitHeld      = 0
	ExitDiffered  = 1
	ExitUndecided = 3
)

// Report is the result of a run.
type Report struct {
	Version string // of Sluice
	Began   time.Time
	Took    time.Duration
	Systems []SystemReport
	Left    []string // what could not be removed
}

// SystemReport is what was found about one system.
type SystemReport struct {
	System string
	Rights []Right
	Checks []Result
}

// Result is a check and its outcome.
type Result struct {
	Name, Assumes string
	Outcome
	Took time.Duration
}

func (s *SystemReport) add(c Check, o Outcome, took time.Duration) {
	if o.Verdict == "" {
		o = undecided("the check gave no verdict")
	}
	s.Checks = append(s.Checks, Result{c.Name, c.Assumes, o, took.Round(time.Millisecond)})
}

// left records what could not be removed, one line each.
func (r *Report) left(err error) {
	if err != nil {
		r.Left = strings.Split(err.Error(), "\n")
	}
}

// missing reports whether a right is missing.
func (r *Report) missing() bool {
	return slices.ContainsFunc(r.Systems, func(s SystemReport) bool {
		return slices.ContainsFunc(s.Rights, func(right Right) bool { return !right.Granted })
	})
}

// unreachable reports whether a system did not answer.
func (r *Report) unreachable() bool {
	return slices.ContainsFunc(r.Systems, func(s SystemReport) bool { return s.unreached() != nil })
}

// unreached returns the first right that is not known because the system did not answer.
func (s *SystemReport) unreached() *Right {
	if i := slices.IndexFunc(s.Rights, func(right Right) bool { return right.Unreachable }); i >= 0 {
		return &s.Rights[i]
	}
	return nil
}

// Count returns how many checks have one of the verdicts.
func (r *Report) Count(of ...Verdict) (n int) {
	for _, s := range r.Systems {
		for _, c := range s.Checks {
			if slices.Contains(of, c.Verdict) {
				n++
			}
		}
	}
	return n
}

// ExitCode is that of the command. What is left behind, or was not decided, is not "held".
func (r *Report) ExitCode() int {
	switch {
	case r.Count(Differed) > 0:
		return ExitDiffered
	case r.missing() || len(r.Left) > 0 || r.Count(Undecided) > 0:
		return ExitUndecided
	}
	return ExitHeld
}

// each calls change with every text of the report that came from outside.
func (r *Report) each(change func(string) string) {
	for i := range r.Systems {
		s := &r.Systems[i]
		s.System = change(s.System)
		for j := range s.Rights {
			s.Rights[j].Found, s.Rights[j].Next = change(s.Rights[j].Found), change(s.Rights[j].Next)
		}
		for j := range s.Checks {
			c := &s.Checks[j]
			c.Found, c.Next = change(c.Found), change(c.Next)
		}
	}
	for i := range r.Left {
		r.Left[i] = change(r.Left[i])
	}
}

// clone copies the report as far as each changes it.
func (r *Report) clone() *Report {
	c := *r
	c.Left = slices.Clone(r.Left)
	c.Systems = slices.Clone(r.Systems)
	for i := range c.Systems {
		c.Systems[i].Rights = slices.Clone(c.Systems[i].Rights)
		c.Systems[i].Checks = slices.Clone(c.Systems[i].Checks)
	}
	return &c
}

// Redact replaces secrets in all texts of the report.
func (r *Report) Redact(secrets []string) {
	replace := replacer(secrets, func(int) string { return "***" })
	r.each(func(text string) string { return replace(text, false) })
}

// ipAddress matches IP addresses in errors of the network. Those of version 6 stand in brackets there.
var ipAddress = regexp.MustCompile(`\b\d{1,3}(\.\d{1,3}){3}\b|\[[0-9a-fA-F]*:[0-9a-fA-F:.]*(%[^\]]*)?\]`)

// Anonymous returns a copy in which names, such as those of hosts and hubs, are numbers, and IP
// addresses are left out.
func (r *Report) Anonymous(names []string) *Report {
	replace := replacer(names, func(i int) string { return fmt.Sprintf("(name %d)", i+1) })
	c := r.clone()
	c.each(func(text string) string { return ipAddress.ReplaceAllString(replace(text, true), "(address)") })
	return c
}

// minReplaced is the length of the shortest text that is replaced.
const minReplaced = 2

// replacer returns a function that replaces texts, the longest first, so that a part of a name does
// not break the name. With whole it replaces whole words only.
func replacer(texts []string, by func(i int) string) func(text string, whole bool) string {
	order := make([]int, 0, len(texts))
	for i, t := range texts {
		if len(t) >= minReplaced && slices.Index(texts, t) == i {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return len(texts[b]) - len(texts[a]) })
	return func(text string, whole bool) string {
		for _, i := range order {
			if whole {
				text = replaceWords(text, texts[i], by(i))
			} else {
				text = strings.ReplaceAll(text, texts[i], by(i))
			}
		}
		return text
	}
}

// replaceWords replaces a word where no letter or digit is beside it.
func replaceWords(text, word, by string) string {
	var b strings.Builder
	for from := 0; ; {
		i := strings.Index(text[from:], word)
		if i < 0 {
			return b.String() + text[from:]
		}
		i += from
		end := i + len(word)
		b.WriteString(text[from:i])
		if i > 0 && alphanumeric(text[i-1]) || end < len(text) && alphanumeric(text[end]) {
			b.WriteString(word)
		} else {
			b.WriteString(by)
		}
		from = end
	}
}

func alphanumeric(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// document is the report as JSON.
type document struct {
	Sluice    string           `json:"sluice"`
	Platform  string           `json:"platform"`
	Began     time.Time        `json:"began"`
	Seconds   float64          `json:"seconds"`
	Result    string           `json:"result"` // held, differed or undecided
	Held      int              `json:"held"`
	Differed  int              `json:"differed"`
	Tolerated int              `json:"tolerated"`
	Undecided int              `json:"undecided"`
	Skipped   int              `json:"skipped"`
	Systems   []systemDocument `json:"systems"`
	Left      []string         `json:"left"`
}

type systemDocument struct {
	System string          `json:"system"`
	Rights []rightDocument `json:"rights"`
	Checks []checkDocument `json:"checks"`
}

type rightDocument struct {
	Name        string `json:"name"`
	Granted     bool   `json:"granted"`
	Unreachable bool   `json:"unreachable,omitempty"`
	Found       string `json:"found,omitempty"`
	Next        string `json:"next,omitempty"`
}

type checkDocument struct {
	Name     string    `json:"name"`
	Assumes  string    `json:"assumes"`
	Verdict  Verdict   `json:"verdict"`
	Found    string    `json:"found"`
	Next     string    `json:"next,omitempty"`
	Measures []Measure `json:"measures,omitempty"`
	Seconds  float64   `json:"seconds"`
}

var resultNames = map[int]string{ExitHeld: "held", ExitDiffered: "differed", ExitUndecided: "undecided"}

// WriteJSON writes the report as JSON.
func (r *Report) WriteJSON(w io.Writer) error {
	d := document{
		Sluice: r.Version, Platform: runtime.GOOS + "/" + runtime.GOARCH, Began: r.Began, Seconds: r.Took.Seconds(), Result: resultNames[r.ExitCode()],
		Held: r.Count(Held), Differed: r.Count(Differed), Tolerated: r.Count(Tolerated), Undecided: r.Count(Undecided), Skipped: r.Count(Skipped),
		Systems: []systemDocument{}, Left: append([]string{}, r.Left...),
	}
	for _, s := range r.Systems {
		sd := systemDocument{System: s.System, Rights: []rightDocument{}, Checks: []checkDocument{}}
		for _, right := range s.Rights {
			sd.Rights = append(sd.Rights, rightDocument(right))
		}
		for _, c := range s.Checks {
			sd.Checks = append(sd.Checks, checkDocument{c.Name, c.Assumes, c.Verdict, c.Found, c.Next, c.Measures, c.Took.Seconds()})
		}
		d.Systems = append(d.Systems, sd)
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(d)
}
