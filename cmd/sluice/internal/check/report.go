package check

import (
	"fmt"
	"io"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Exit codes of the command.
const (
	ExitFailed    = 1
	ExitUndecided = 3
)

// List is what was found.
type List []Finding

// Count is how many findings have a state.
func (l List) Count(of State) (n int) {
	for _, f := range l {
		if f.State == of {
			n++
		}
	}
	return n
}

// Worst is the worst state of the findings.
func (l List) Worst() State {
	worst := OK
	for _, f := range l {
		if severity(f.State) > severity(worst) {
			worst = f.State
		}
	}
	return worst
}

// ExitCode is that of the command.
func (l List) ExitCode() int {
	return map[State]int{Failed: ExitFailed, Undecided: ExitUndecided}[l.Worst()]
}

// changed is a copy in which the texts that came from outside are changed.
func (l List) changed(change func(string) string) List {
	l = slices.Clone(l)
	for i := range l {
		f := &l[i]
		f.Thing, f.Found, f.Next = change(f.Thing), change(f.Found), change(f.Next)
	}
	return l
}

// Redact returns a copy without secrets.
func (l List) Redact(secrets []string) List {
	replace := replacer(secrets, func(int) string { return "***" })
	return l.changed(func(text string) string { return replace(text, false) })
}

// ipAddress matches IP addresses in errors of the network. Those of version 6 stand in brackets
// there.
var ipAddress = regexp.MustCompile(`\b\d{1,3}(\.\d{1,3}){3}\b|\[[0-9a-fA-F]*:[0-9a-fA-F:.]*(%[^\]]*)?\]`)

// Anonymous returns a copy in which names, such as those of hosts and hubs, are numbers, and IP
// addresses are left out.
func (l List) Anonymous(names []string) List {
	replace := replacer(names, func(i int) string { return fmt.Sprintf("(name %d)", i+1) })
	return l.changed(func(text string) string { return ipAddress.ReplaceAllString(replace(text, true), "(address)") })
}

// Report is a list as JSON, and when it was made by what.
type Report struct {
	File     string        `json:"file,omitempty"`
	Sluice   string        `json:"sluice"`
	Platform string        `json:"platform"`
	Began    time.Time     `json:"began"`
	Seconds  float64       `json:"seconds"`
	Result   State         `json:"result"` // the worst of the findings
	Counts   map[State]int `json:"counts"`
	Findings List          `json:"findings"`
}

// NewReport returns the report about what was found from began until now.
func NewReport(file, version string, began time.Time, list List) *Report {
	r := &Report{
		File: file, Sluice: version, Platform: runtime.GOOS + "/" + runtime.GOARCH, Began: began.UTC().Truncate(time.Second),
		Seconds: time.Since(began).Round(time.Millisecond).Seconds(), Result: list.Worst(), Counts: map[State]int{}, Findings: list,
	}
	for _, state := range severities[1:] {
		r.Counts[state] = list.Count(state)
	}
	return r
}

// WriteText writes the list for people.
func (l List) WriteText(w io.Writer) error {
	var b strings.Builder
	stage := ""
	for len(l) > 0 {
		f, n := l[0], l.alike()
		if f.Stage != stage {
			stage = f.Stage
			fmt.Fprintf(&b, "stage %s\n", stage)
		}
		var names []string
		for _, other := range l[:n] {
			names = append(names, other.Check)
		}
		if f.Thing != "" {
			f.Thing += ": "
		}
		fmt.Fprintf(&b, "%-9s  %s: %s%s\n", f.State, strings.Join(names, ", "), f.Thing, f.Found)
		if f.Assumes != "" && (f.State == Failed || f.State == Warning) {
			fmt.Fprintf(&b, "%-9s  assumed: %s\n", "", f.Assumes)
		}
		if len(f.Measures) > 0 {
			fmt.Fprintf(&b, "%-9s  measured: %s\n", "", shown(f.Measures))
		}
		if f.Next != "" {
			fmt.Fprintf(&b, "%-9s  → %s\n", "", f.Next)
		}
		l = l[n:]
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// alike is how many findings share the first one's entry: checks that failed for one reason.
func (l List) alike() int {
	n := slices.IndexFunc(l, func(f Finding) bool {
		return f.Stage != l[0].Stage || f.Thing != l[0].Thing || f.State != l[0].State || f.Found != l[0].Found || f.Next != l[0].Next || f.Assumes == "" || len(f.Measures) > 0
	})
	if n < 0 {
		return len(l)
	}
	return max(n, 1)
}

func shown(measures []Measure) string {
	var list []string
	for _, m := range measures {
		digits := 0
		switch {
		case m.Value < 10:
			digits = 2
		case m.Value < 100:
			digits = 1
		}
		list = append(list, m.Name+" "+strconv.FormatFloat(m.Value, 'f', digits, 64)+" "+m.Unit)
	}
	return strings.Join(list, "; ")
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
