//go:build unix

package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// record is what bin/TIER.json holds: what became of each test of the last run.
type record struct {
	Tree     string                           `json:"tree"` // identifies the source
	Packages map[string]map[string]testRecord `json:"packages"`
}

type testRecord struct {
	Result  string   `json:"result"` // pass, fail, skip
	Seconds float64  `json:"seconds"`
	Needs   []string `json:"needs,omitempty"`
}

// readRecord returns the record of a tier's last run, or nil if there is none of this source.
func readRecord(tier string) *record {
	text, err := os.ReadFile("bin/" + tier + ".json")
	if err != nil {
		return nil
	}
	rec := &record{}
	if json.Unmarshal(text, rec) != nil || rec.Tree == "" || rec.Tree != tree() {
		return nil
	}
	return rec
}

// keepRecord adds results to this run's record.
func (r *run) keepRecord(rs results) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for path, p := range rs {
		if r.results[path] == nil {
			r.results[path] = map[string]testRecord{}
		}
		for name, t := range p.tests {
			if top, _, part := strings.Cut(name, "/"); part {
				rec := r.results[path][top]
				rec.Needs = merged(rec.Needs, t.needs)
				r.results[path][top] = rec
				continue
			}
			rec := r.results[path][name]
			r.results[path][name] = testRecord{Result: t.action, Seconds: t.seconds, Needs: merged(rec.Needs, t.needs)}
		}
	}
}

func merged(a, b []string) []string {
	list := slices.Concat(a, b)
	slices.Sort(list)
	return slices.Compact(list)
}

// passed is a pattern of the tests that passed in the recorded run and need nothing, in whichever
// of these packages there is one of the name: what need not run again. It is empty if there are
// none.
func (rec *record) passed(packages []string) string {
	if rec == nil {
		return ""
	}
	done, open := map[string]bool{}, map[string]bool{}
	for _, path := range packages {
		for name, t := range rec.Packages[path] {
			if t.Result == "pass" && len(t.Needs) == 0 {
				done[name] = true
			} else {
				open[name] = true
			}
		}
		if rec.Packages[path] == nil {
			return "" // the package may have tests of the same names
		}
	}
	var names []string
	for name := range done {
		if !open[name] {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names)
	return exactly(names)
}

// tree identifies the source and its compiler: the commit, and what differs from it. It is empty
// outside of a repository.
func tree() string {
	h := sha256.New()
	var untracked []byte
	for _, command := range []string{"go env GOVERSION GOFLAGS", "git rev-parse HEAD", "git diff HEAD --binary", "git ls-files --others --exclude-standard"} {
		words := strings.Fields(command)
		out, err := exec.Command(words[0], words[1:]...).Output()
		if err != nil {
			return ""
		}
		h.Write(out)
		h.Write([]byte{0})
		untracked = out
	}
	for name := range strings.Lines(string(untracked)) {
		text, _ := os.ReadFile(strings.TrimSpace(name)) // a file that is gone differs from one that is there
		h.Write(text)
		h.Write([]byte{0})
	}
	return hex.EncodeToString(h.Sum(nil))
}
