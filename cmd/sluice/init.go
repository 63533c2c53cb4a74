package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/sluice-go/sluice/cmd/sluice/internal/newfile"
	"github.com/sluice-go/sluice/cmd/sluice/internal/usage"
)

// question is what init asks, unless its flag answers it.
type question struct {
	flag, text string
	words      []string
	fallback   string
}

var questions = []question{
	{"source", "Where do events come from?", newfile.Sources, "eventhub"},
	{"target", "What is done with them?", newfile.Targets, "insert"},
	{"database", "Which database holds checkpoints and dead letters?", newfile.Databases, "sqlite"},
	{"partitions", "Which partitions does a process own?", newfile.Partitions, "all"},
}

func (a *app) initCommand() *cobra.Command {
	var force bool
	given := make([]string, len(questions))
	cmd := &cobra.Command{
		Use:   "init PIPELINE.yaml",
		Short: "Write a new pipeline file with comments",
		Long: `Write a new pipeline file with comments, which sluice check accepts once the
variables in it are set. On a terminal the command asks for what no flag states;
elsewhere the defaults are taken. A file that exists is not overwritten without --force.`,
		Example: `  sluice init flights.yaml
  sluice init flights.yaml --source kafka --target http --database postgres`,
		Args: needs(1, 1, "name the file to write: pass PIPELINE.yaml"),
		RunE: a.runE(func(_ context.Context, args []string) error {
			var input io.Reader
			if term.IsTerminal(int(os.Stdin.Fd())) {
				input = os.Stdin
			}
			if err := a.answer(given, input); err != nil {
				return err
			}
			c := newfile.Choice{Source: given[0], Target: given[1], Database: given[2], Partitions: given[3]}
			name := strings.TrimSuffix(filepath.Base(args[0]), filepath.Ext(args[0]))
			mode := os.O_WRONLY | os.O_CREATE | os.O_EXCL
			if force {
				mode = os.O_WRONLY | os.O_CREATE | os.O_TRUNC
			}
			file, err := os.OpenFile(args[0], mode, 0o644)
			if errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("%s exists already: name another file, or pass --force to overwrite it", args[0])
			}
			if err != nil {
				return notThere(err, "make the directory first")
			}
			_, err = io.WriteString(file, newfile.Text(name, c))
			if err := errors.Join(err, file.Close()); err != nil {
				return err
			}
			fmt.Fprintf(a.out, "%s is written. Next, set the variables that it names:\n", args[0])
			for _, v := range newfile.Variables(c) {
				fmt.Fprintf(a.out, "  export %s=…\n", v)
			}
			fmt.Fprintf(a.out, "then correct the names in it, and run\n  sluice check %s --connect\n", args[0])
			return nil
		}),
	}
	for i, q := range questions {
		cmd.Flags().StringVar(&given[i], q.flag, "", fmt.Sprintf("one of `%s` (default %s)", strings.Join(q.words, ", "), q.fallback))
	}
	cmd.Flags().BoolVar(&force, "force", false, "overwrite the file if it exists")
	return cmd
}

// answer asks for what is not given, and checks the words. A wrong answer is asked for once more. A nil
// input is no terminal: the defaults are taken.
func (a *app) answer(given []string, input io.Reader) error {
	var lines *bufio.Reader
	if input != nil {
		lines = bufio.NewReader(input)
	}
	for i, q := range questions {
		var err error
		if given[i] == "" && lines != nil {
			given[i], err = a.ask(q, lines)
			if errors.As(err, new(*usage.Error)) {
				fmt.Fprintln(a.screen, err)
				given[i], err = a.ask(q, lines)
			}
		} else {
			given[i] = cmp.Or(given[i], q.fallback)
			err = q.check(given[i])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// ask asks a question once.
func (a *app) ask(q question, lines *bufio.Reader) (word string, err error) {
	fmt.Fprintf(a.screen, "%s (%s) [%s] ", q.text, strings.Join(q.words, ", "), q.fallback)
	line, err := lines.ReadString('\n')
	if err != nil {
		return "", errors.New("no answer: nothing was written")
	}
	word = cmp.Or(strings.TrimSpace(line), q.fallback)
	return word, q.check(word)
}

func (q question) check(word string) error {
	if !slices.Contains(q.words, word) {
		return usage.Errorf("--%s %s: write one of %s", q.flag, word, strings.Join(q.words, ", "))
	}
	return nil
}
