package processors

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/internal/proof/built"
	"github.com/sluice-go/sluice/pipeline"
)

var program = built.Main("github.com/sluice-go/sluice/cmd/sluice")

func TestMain(m *testing.M) { os.Exit(built.Run(m)) }

// patience ends what hangs. It measures nothing.
const patience = 4 * time.Minute

// eventually waits for a condition. It returns false when patience ends, or the channel was closed
// and the condition does not hold.
func eventually(t *testing.T, ok func() bool, over <-chan struct{}) bool {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for !ok() {
		select {
		case <-look.C:
		case <-over:
			return ok()
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// sluice is a pipeline of examples/flights.yaml, and the command line for it.
type sluice struct {
	t        *testing.T
	database string
	env      []string
}

func newSluice(t *testing.T, hub, storage string) *sluice {
	database := "sqlite:" + filepath.Join(t.TempDir(), "flights.db")
	return &sluice{t, database, []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"),
		"EVENTHUB_CONNECTION_STRING=" + hub, "AZURE_STORAGE_CONNECTION_STRING=" + storage, "DATABASE_URL=" + database,
	}}
}

// config is the example: the test begins in the package's directory.
func config() string {
	return filepath.Join("..", "..", "..", "..", "..", "..", "examples", "flights.yaml")
}

// run runs a command to its end.
func (s *sluice) run(args ...string) (code int, out, errs string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program.Path(s.t), args...)
	var stdout, stderr bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr = s.env, &stdout, &stderr
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		s.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()
}

// must is run of what has to succeed.
func (s *sluice) must(args ...string) string {
	s.t.Helper()
	code, out, errs := s.run(args...)
	if code != 0 {
		s.t.Fatalf("sluice %s: exit code %d\n%s%s", strings.Join(args, " "), code, out, errs)
	}
	return out
}

// send sends so many events, which the producer spreads over the partitions.
func (s *sluice) send(n int) {
	s.t.Helper()
	var lines bytes.Buffer
	for i := range n {
		fmt.Fprintf(&lines, `{"date":"2001/01/14 21:55","delay":%d,"distance":480,"origin":"SAN","destination":"SMF"}`+"\n", i)
	}
	file := filepath.Join(s.t.TempDir(), "events.jsonl")
	if err := os.WriteFile(file, lines.Bytes(), 0o600); err != nil {
		s.t.Fatal(err)
	}
	s.must("send", "--hub", "flights", file)
}

// seam is a partition in a report of sluice move.
type seam struct {
	Partition  string
	Old        *int64
	End, Start int64
	Verdict    string
	Why        []string
}

// move runs sluice move with the flags, and reads its report.
func (s *sluice) move(flags ...string) (seams map[string]seam) {
	s.t.Helper()
	var report struct {
		Partitions []seam
	}
	out := s.must(append([]string{"move", "--config", config(), "--every", "1s", "--json", "--apply"}, flags...)...)
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		s.t.Fatalf("%v in %s", err, out)
	}
	seams = map[string]seam{}
	for _, p := range report.Partitions {
		seams[p.Partition] = p
	}
	return seams
}

// rows are the events with a row, by partition, in the log's order.
func (s *sluice) rows() map[string][]int64 {
	s.t.Helper()
	db, err := pipeline.OpenReader(s.database)
	if err != nil {
		s.t.Fatal(err)
	}
	defer db.Close()
	result, err := db.QueryContext(s.t.Context(), "SELECT hub_partition, sequence_number FROM flights ORDER BY hub_partition, sequence_number")
	if err != nil {
		s.t.Fatal(err)
	}
	defer result.Close()
	list := map[string][]int64{}
	for result.Next() {
		var partition string
		var sequence int64
		if err := result.Scan(&partition, &sequence); err != nil {
			s.t.Fatal(err)
		}
		list[partition] = append(list[partition], sequence)
	}
	if err := result.Err(); err != nil {
		s.t.Fatal(err)
	}
	return list
}
