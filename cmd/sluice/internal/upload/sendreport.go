package upload

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/sluice-go/sluice/cmd/sluice/internal/records"
	"github.com/sluice-go/sluice/cmd/sluice/internal/usage"
	"github.com/sluice-go/sluice/internal/datadir"
	"github.com/sluice-go/sluice/internal/idset"
	"github.com/sluice-go/sluice/sender"
)

// sendReport is a file that says what became of each record of an input, in JSON lines. It is
// written while records are sent, so that it is of use after kill -9 too. docs/send.md describes
// the lines. Its methods are safe for concurrent use, except that sending is called by one
// goroutine.
type sendReport struct {
	path  string
	begin reportBegin
	known // of earlier runs
	lock  *datadir.DirLock

	mu        sync.Mutex
	file      *os.File
	announced int64 // records up to this number are announced as being sent
	err       error // why the file could not be written
}

// reportLine is a line of the file: one of its fields Begin, Outcome and End is set.
type reportLine struct {
	Begin   *reportBegin `json:"begin,omitempty"`
	Outcome outcome      `json:"outcome,omitempty"`
	Records string       `json:"records,omitempty"` // see numbers
	Place   string       `json:"at,omitempty"`      // where the first of them stands; the others follow it
	Reason  string       `json:"reason,omitempty"`
	End     *reportEnd   `json:"end,omitempty"`
}

// reportBegin begins a run: of send --report, or of send --resume.
type reportBegin struct {
	Time        time.Time    `json:"time"`
	ID          string       `json:"id"` // the ids of messages are made of it
	Destination *Destination `json:"to"`
	Files       []reportFile `json:"files"`
}

// reportFile identifies a file of the input.
type reportFile struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"` // in bytes
	SHA256 string `json:"sha256"`
}

// reportEnd ends a run, unless the process was killed.
type reportEnd struct {
	Time     time.Time `json:"time"`
	Complete bool      `json:"complete"` // all records are sent
}

// outcome is what became of records. Of several for a record, the strongest counts: sent, then
// unknown, then rejected.
type outcome string

const (
	outcomeSending  outcome = "sending" // from here on they may be stored; counts if the run has no end
	outcomeSent     outcome = "sent"
	outcomeRejected outcome = "rejected"
	outcomeUnknown  outcome = "unknown"
	outcomeNotSent  outcome = "not sent"
)

// maxReportLine bounds a line of a report, in bytes. A batch has at most a few hundred kilobytes of
// numbers.
const maxReportLine = 16 << 20

// announceAhead is how many records a line of outcomeSending announces. After a kill, so many more
// than were sent may have an unknown outcome.
const announceAhead = 256

// createReport begins the report of files. The file must not exist.
func createReport(path string, to *Destination, names []string) (*sendReport, error) {
	r := &sendReport{path: path}
	r.begin = reportBegin{Time: time.Now().UTC(), ID: strings.ToLower(rand.Text()[:16]), Destination: to.withoutSecrets()}
	for _, name := range names {
		f, err := identify(name)
		if err != nil {
			return nil, err
		}
		r.begin.Files = append(r.begin.Files, f)
	}
	var err error
	r.file, err = os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil, usage.Errorf("--report %s: the file exists: choose another name, or continue with --resume %s", path, path)
	}
	if err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	if r.lock, err = lockReport(path); err != nil {
		return nil, errors.Join(err, r.file.Close())
	}
	r.write(&reportLine{Begin: &r.begin})
	return r, r.failure()
}

// lockReport prevents that two processes send what is missing in the same report.
func lockReport(path string) (*datadir.DirLock, error) {
	lock, err := datadir.Lock(path)
	if errors.Is(err, datadir.ErrLocked) {
		return nil, fmt.Errorf("report %s: another sluice send writes it: wait until that has ended", path)
	}
	if err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	return lock, nil
}

// identify computes the size and hash of a file.
func identify(name string) (f reportFile, err error) {
	if name == "-" {
		return f, usage.Errorf("--report needs files: write standard input to a file first, so that the report can name its records")
	}
	if err := checkReadable(name); err != nil {
		return f, fmt.Errorf("%s: cannot be read: %w", name, err)
	}
	in, err := os.Open(name)
	if err != nil {
		return f, err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return f, err
	}
	if !info.Mode().IsRegular() {
		return f, usage.Errorf("--report: %s is not a regular file: write it to one first, so that it can be read again", name)
	}
	if name, err = filepath.Abs(name); err != nil {
		return f, err
	}
	hash := sha256.New()
	size, err := io.Copy(hash, in)
	return reportFile{Name: name, Size: size, SHA256: hex.EncodeToString(hash.Sum(nil))}, err
}

// ReadReport returns the destination and the files of a report.
func ReadReport(path string) (to *Destination, names []string, err error) {
	begin, _, err := readBegin(path)
	if err != nil {
		return nil, nil, err
	}
	for _, f := range begin.Files {
		names = append(names, f.Name)
	}
	return begin.Destination, names, nil
}

// readBegin reads the first line of a report, and returns the rest of the file besides.
func readBegin(path string) (*reportBegin, []byte, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, fmt.Errorf("report: %w", err)
	}
	first, rest, _ := bytes.Cut(text, []byte("\n"))
	var line reportLine
	if err := json.Unmarshal(first, &line); err != nil || line.Begin == nil || line.Begin.Destination == nil || len(line.Begin.Files) == 0 {
		return nil, nil, fmt.Errorf("%s: not a report of sluice send --report: its first line does not name the destination and the files", path)
	}
	return line.Begin, rest, nil
}

// resumeReport continues a report with the files of its input, which may have other names now.
func resumeReport(path string, to *Destination, names []string) (_ *sendReport, err error) {
	lock, err := lockReport(path)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, lock.Unlock())
		}
	}()
	begin, rest, err := readBegin(path)
	if err != nil {
		return nil, err
	}
	if len(names) != len(begin.Files) {
		return nil, usage.Errorf("--resume %s: the report is of %d files, and not of %d", path, len(begin.Files), len(names))
	}
	r := &sendReport{path: path, lock: lock, begin: reportBegin{Time: time.Now().UTC(), ID: begin.ID, Destination: to.withoutSecrets()}}
	for i, name := range names {
		f, err := identify(name)
		if err != nil {
			return nil, err
		}
		if was := begin.Files[i]; f.Size != was.Size || f.SHA256 != was.SHA256 {
			return nil, fmt.Errorf("%s: not the file that the report is of (%d bytes with the hash %.12s…, and the report is of %d bytes with %.12s…): its records have other numbers, so send what is missing by other means",
				name, f.Size, f.SHA256, was.Size, was.SHA256)
		}
		r.begin.Files = append(r.begin.Files, f)
	}
	whole := bytes.LastIndexByte(rest, '\n') + 1 // a kill may have cut the last line
	open, err := r.known.read(rest[:whole])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if r.file, err = os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0); err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	if cut := len(rest) - whole; cut > 0 {
		info, err := r.file.Stat()
		if err == nil {
			err = r.file.Truncate(info.Size() - int64(cut))
		}
		if err != nil {
			return nil, fmt.Errorf("report: %w", err)
		}
	}
	if open { // it was killed
		if list := r.unknown.list(); len(list) > 0 {
			r.write(&reportLine{Outcome: outcomeUnknown, Records: formatNumbers(list), Reason: "the process ended before the outcome was known"})
		}
		r.write(&reportLine{End: &reportEnd{Time: r.begin.Time}})
	}
	r.write(&reportLine{Begin: &r.begin})
	return r, r.failure()
}

// write appends a line.
func (r *sendReport) write(l *reportLine) {
	text, err := json.Marshal(l)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil && r.err == nil {
		_, err = r.file.Write(append(text, '\n'))
	}
	r.err = cmp.Or(r.err, err)
}

// failure returns why the report could not be written.
func (r *sendReport) failure() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return fmt.Errorf("report: %w", r.err)
	}
	return nil
}

// sending notes that a record is going to be sent, before it is.
func (r *sendReport) sending(number int64) error {
	if r.announced < number {
		r.announced = number + announceAhead - 1
		r.write(&reportLine{Outcome: outcomeSending, Records: numbers{number, r.announced, 1}.String()})
	}
	return r.failure()
}

// messageID is the id of a record's message. A record that is sent again has the same.
func (r *sendReport) messageID(number int64) string { return fmt.Sprintf("%s-%d", r.begin.ID, number) }

func (r *sendReport) rejected(number int64, at records.Place, reason string) {
	r.write(&reportLine{Outcome: outcomeRejected, Records: numbers{number, number, 1}.String(), Place: at.String(), Reason: reason})
}

// finish writes the outcomes that are known at the end only. If it is incomplete, the input was not
// read to its end, and next is the first record that was not looked at.
func (r *sendReport) finish(p *places, result *sender.Report, next int64, incomplete bool, why error) error {
	reason := ""
	if why != nil {
		reason = strings.Join(strings.Fields(why.Error()), " ")
	}
	write := func(o outcome, list []sender.IndexRange) {
		for _, indices := range list {
			for first, run := range p.records(indices) {
				r.write(&reportLine{Outcome: o, Records: formatNumbers([]sender.IndexRange{run}), Place: first.String(), Reason: reason})
			}
		}
	}
	write(outcomeUnknown, result.Unknown)
	write(outcomeNotSent, result.Unsent)
	if incomplete {
		r.write(&reportLine{Outcome: outcomeNotSent, Records: numbers{next, toEnd, 1}.String(), Reason: reason})
	}
	r.write(&reportLine{End: &reportEnd{Time: time.Now().UTC(), Complete: why == nil}})
	return errors.Join(r.failure(), r.close())
}

func (r *sendReport) close() error { return errors.Join(r.file.Close(), r.lock.Unlock()) }

// known is what a report says of the records.
type known struct{ sent, unknown recordSet }

// read reads the lines of a report after its first. Open says that the last run has no end: what it
// was sending is unknown then.
func (k *known) read(text []byte) (open bool, err error) {
	// Of the last run, unless it has an end.
	var rejected recordSet
	var sending []numbers
	var limits reportLimits
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, maxReportLine)
	open = true
	for n := 2; lines.Scan(); n++ {
		var line reportLine
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return false, fmt.Errorf("line %d: damaged: %w", n, err)
		}
		switch {
		case line.End != nil:
			open, sending, rejected = false, nil, recordSet{}
			continue
		case line.Begin != nil:
			open = true
			continue
		}
		list, err := limits.parse(&line)
		if err != nil {
			return false, fmt.Errorf("line %d: %w", n, err)
		}
		switch line.Outcome {
		case outcomeSending:
			sending = append(sending, list...)
		case outcomeSent:
			k.sent.add(list)
		case outcomeUnknown:
			k.unknown.add(list)
		case outcomeRejected:
			rejected.add(list)
		case outcomeNotSent:
		default:
			return false, fmt.Errorf("line %d: unknown outcome %q", n, line.Outcome)
		}
	}
	if err := lines.Err(); err != nil {
		return false, err
	}
	sending = withoutRecords(sending, &rejected)
	k.unknown.add(sending)
	var unknown recordSet
	for _, r := range k.unknown.list() {
		unknown.add(withoutRecords([]numbers{{r.First, r.Last, 1}}, &k.sent))
	}
	k.unknown = unknown
	return open, nil
}

// reportLimits bounds what the lines of a damaged report can name. How many records the input has
// is not known from its size, which may be that of compressed text. But each record is announced
// before it is sent, a few with each line.
type reportLimits struct {
	announced int64 // records, those that were announced twice counted twice
	last      int64 // the highest of them
}

// maxNumber is the highest number that a record can have.
const maxNumber = 1 << 53

// parse returns the records of a line.
func (l *reportLimits) parse(line *reportLine) ([]numbers, error) {
	most, width := l.last, l.announced
	switch line.Outcome {
	case outcomeSending, outcomeRejected:
		most, width = maxNumber, announceAhead
	case outcomeNotSent:
		most, width = maxNumber, maxNumber
	}
	list, err := parseNumbers(line.Records, most)
	if err != nil {
		return nil, err
	}
	for _, n := range list {
		count := (n.last-n.first)/n.step + 1
		if count > width {
			return nil, errors.New("more records than were announced")
		}
		if line.Outcome == outcomeSending {
			l.announced, l.last = l.announced+max(count, 0), max(l.last, n.last)
		}
	}
	return list, nil
}

// withoutRecords returns the records of a list that are not in a set.
func withoutRecords(list []numbers, set *recordSet) (rest []numbers) {
	for _, n := range list {
		for i := n.first; i <= n.last; i += n.step {
			switch last := len(rest) - 1; {
			case set.has(i):
			case last >= 0 && rest[last].last == i-1:
				rest[last].last = i
			default:
				rest = append(rest, numbers{i, i, 1})
			}
		}
	}
	return rest
}

// recordSet is a set of record numbers.
type recordSet struct {
	ids   idset.Set
	count int64
	last  int64 // the highest
}

func (s *recordSet) add(list []numbers) {
	for _, n := range list {
		for i := n.first; i <= n.last; i += n.step {
			if id := (idset.ID{Sequence: i}); !s.ids.Has(id) {
				s.ids.Add(id)
				s.count++
			}
		}
		s.last = max(s.last, n.last)
	}
}

func (s *recordSet) has(number int64) bool { return s.ids.Has(idset.ID{Sequence: number}) }

// list returns the set as sorted ranges.
func (s *recordSet) list() (list []sender.IndexRange) {
	s.ids.Range(0, s.last, func(id idset.ID) {
		if n := len(list); n > 0 && list[n-1].Last+1 == id.Sequence {
			list[n-1].Last++
			return
		}
		list = append(list, sender.IndexRange{First: id.Sequence, Last: id.Sequence})
	})
	return list
}
