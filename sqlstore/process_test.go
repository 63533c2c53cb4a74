package sqlstore

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/need"
)

var group = driver.Group{Namespace: "ns", Topic: "flights", Name: "$Default"}

func leaseOf(partition, owner string, epoch int64) driver.Lease {
	return driver.Lease{Group: group, Partition: partition, Owner: owner, Epoch: epoch}
}

func positionAt(sequence int64) driver.Position { return driver.Position{Sequence: sequence} }

// The test binary is its own second process: with this variable set it does
// what the variable says and tests nothing.
const childEnv = "SQLSTORE_TEST_CHILD"

func TestMain(m *testing.M) {
	if words := strings.Fields(os.Getenv(childEnv)); len(words) > 0 {
		if err := child(words[0], words[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// children are more things for a second process to do, where the system allows.
var children = map[string]func(context.Context, *Store) error{}

// child is what a second process does. It ends when its standard input does.
func child(what string, args []string) error {
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(3)
	}()
	s, err := OpenSQLite("x.db", nil)
	if err != nil {
		return err
	}
	defer s.Close()
	ctx := context.Background()
	switch what {
	case "start":
		_, err := s.DB().Exec(setUp)
		return err
	case "hold": // a transaction open for ever
		l := leaseOf("0", "victim", 1)
		p, err := s.Claim(ctx, l, "i")
		if err != nil {
			return err
		}
		return s.Commit(ctx, driver.Step{Lease: l, From: p.Position, To: positionAt(9)}, func(ctx context.Context, tx *Tx) error {
			for i := range 2000 { // more than the page cache holds: some is in the log already
				if err := put(ctx, tx, fmt.Sprint(i, strings.Repeat(" ", 4000))); err != nil {
					return err
				}
			}
			fmt.Println("holding")
			select {}
		})
	case "march": // one step after the other for ever
		return march(ctx, s, args[0])
	case "work": // so many steps on a partition of its own
		return work(ctx, s, args[0], args[1])
	}
	return children[what](ctx, s)
}

// work commits steps and says how long the longest took.
func work(ctx context.Context, s *Store, partition, steps string) error {
	n, err := strconv.ParseInt(steps, 10, 64)
	if err != nil {
		return err
	}
	l := leaseOf(partition, "worker", 1)
	p, err := s.Claim(ctx, l, "i")
	if err != nil {
		return err
	}
	longest, at := time.Duration(0), p.Position
	for i := range n {
		began := time.Now()
		next := driver.Position{Sequence: i}
		err := s.Commit(ctx, driver.Step{Lease: l, From: at, To: next}, func(ctx context.Context, tx *Tx) error {
			return tx.Insert(ctx, "effects", []string{"key", "part"}, rowsOf(fmt.Sprintf("%s/%d", partition, i), 100, 200))
		})
		if err != nil {
			return err
		}
		at, longest = next, max(longest, time.Since(began))
	}
	fmt.Println("longest", longest.Milliseconds())
	return nil
}

// march commits one step after the other, each with an effect and one more in
// another table, and tells of each that is done.
func march(ctx context.Context, s *Store, epoch string) error {
	n, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil {
		return err
	}
	l := leaseOf("0", "marcher "+epoch, n)
	p, err := s.Claim(ctx, l, "i")
	if err != nil {
		return err
	}
	from := p.Position
	if from == driver.Unset {
		from = driver.Origin
		if err := s.Commit(ctx, driver.Step{Lease: l, From: driver.Unset, To: from}, nil); err != nil {
			return err
		}
	}
	for {
		to := positionAt(from.Sequence + 1)
		if err := s.Commit(ctx, driver.Step{Lease: l, From: from, To: to}, func(ctx context.Context, tx *Tx) error {
			if err := put(ctx, tx, fmt.Sprint(to)); err != nil {
				return err
			}
			_, err := tx.ExecContext(ctx, "INSERT INTO children (now) VALUES (NULL)")
			return err
		}); err != nil {
			return err
		}
		fmt.Println("done", to)
		from = to
	}
}

// rowsOf are n rows for effects whose keys begin alike and have size bytes.
func rowsOf(key string, n, size int) [][]any {
	pad := strings.Repeat("x", size)
	rows := make([][]any, n)
	for i := range rows {
		rows[i] = []any{fmt.Sprintf("%s/%d %s", key, i, pad), i}
	}
	return rows
}

// process is a second process.
type process struct {
	*exec.Cmd
	out *bufio.Scanner
}

// spawn starts the test binary as a child in dir.
func spawn(t testing.TB, dir, what string) *process {
	t.Helper()
	need.RealTime(t)
	cmd := exec.Command(os.Args[0])
	cmd.Dir, cmd.Env, cmd.Stderr = dir, append(os.Environ(), childEnv+"="+what), os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		cmd.Wait()
	})
	return &process{cmd, bufio.NewScanner(out)}
}

// says waits for a line that begins so and returns the rest of it.
func (p *process) says(t testing.TB, begin string) string {
	t.Helper()
	for p.out.Scan() {
		if rest, ok := strings.CutPrefix(p.out.Text(), begin); ok {
			return strings.TrimSpace(rest)
		}
	}
	t.Fatalf("the child ended without saying %q", begin)
	return ""
}

// A process that is killed inside a transaction leaves nothing behind, and
// nobody waits for it.
func TestKilledInTransaction(t *testing.T) {
	dir := t.TempDir()
	s := open(t, filepath.Join(dir, "x.db"))
	victim := spawn(t, dir, "hold")
	victim.says(t, "holding")

	waiting, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := s.Claim(waiting, leaseOf("0", "b", 2), "i")
	mustNotBlame(t, "claim while the other holds the transaction", err)

	if err := victim.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	l := leaseOf("0", "b", 2)
	p, err := s.Claim(t.Context(), l, "i")
	if err != nil || p.Position != driver.Unset || p.Claims != 2 {
		t.Fatalf("claim after the kill: %+v, %v; want the unset position, 2 claims", p, err)
	}
	if err := s.Commit(t.Context(), driver.Step{Lease: l, From: driver.Unset, To: positionAt(9)}, func(ctx context.Context, tx *Tx) error {
		return put(ctx, tx, "once")
	}); err != nil {
		t.Fatal(err)
	}
	if got, err := effects(t.Context(), s); err != nil || !slices.Equal(got, []string{"once"}) {
		t.Errorf("effects are %d, %v; want the one", len(got), err)
	}
}

// Three processes work on one file, each on a partition of its own.
func TestThreeProcesses(t *testing.T) {
	dir := t.TempDir()
	s := open(t, filepath.Join(dir, "x.db"))
	const steps = 100
	var all []*process
	for i := range 3 {
		all = append(all, spawn(t, dir, fmt.Sprintf("work %d %d", i, steps)))
	}
	for i, p := range all {
		t.Logf("process %d: its longest step took %s ms", i, p.says(t, "longest"))
		if err := p.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	var rows, keys int
	if err := s.DB().QueryRow("SELECT count(*), count(DISTINCT key) FROM effects").Scan(&rows, &keys); err != nil {
		t.Fatal(err)
	}
	if want := 3 * steps * 100; rows != want || keys != want {
		need.Verdict(t)
		t.Errorf("%d rows of %d keys, want %d of each", rows, keys, want)
	}
}

// A process that is killed at any moment has done what it said, and perhaps
// one step more, each exactly once and whole.
func TestKilledAtAnyTime(t *testing.T) {
	dir := t.TempDir()
	s := open(t, filepath.Join(dir, "x.db"))
	said, random := int64(-1), need.Rand(t)
	for epoch := range 12 {
		p := spawn(t, dir, fmt.Sprint("march ", epoch+1))
		for range 1 + random.IntN(40) {
			n, err := strconv.ParseInt(p.says(t, "done "), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			if n != said+1 {
				need.Verdict(t)
				t.Fatalf("step %d after step %d", n, said)
			}
			said = n
		}
		if err := p.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for p.out.Scan() { // what it said before it died
			if rest, ok := strings.CutPrefix(p.out.Text(), "done "); ok {
				said, _ = strconv.ParseInt(rest, 10, 64)
			}
		}
		p.Wait()
		list, err := s.Read(t.Context(), group)
		if err != nil || len(list) != 1 {
			t.Fatalf("read: %v, %v", list, err)
		}
		stands := list[0].Position.Sequence
		if stands != said && stands != said+1 {
			need.Verdict(t)
			t.Errorf("checkpoint at %d after a process that said %d", stands, said)
		}
		var rows, keys, second int64
		if err := s.DB().QueryRow("SELECT count(*), count(DISTINCT key), (SELECT count(*) FROM children) FROM effects").Scan(&rows, &keys, &second); err != nil {
			t.Fatal(err)
		}
		if rows != stands+1 || keys != stands+1 || second != stands+1 {
			need.Verdict(t)
			t.Fatalf("%d effects of %d keys and %d in the second table at position %d", rows, keys, second, stands)
		}
		said = stands
	}
}
