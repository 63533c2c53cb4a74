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
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/sluice-go/sluice/cmd/sluice/internal/newfile"
	"github.com/sluice-go/sluice/cmd/sluice/internal/usage"
)

// questions are what init asks, by flag.
var questions = []struct {
	flag, text string
	words      []string
	fallback   string
}{
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
		Long: `Write a new pipeline file with comments, which sluice validate accepts once the
variables in it are set. On a terminal the command asks for what no flag states;
elsewhere the defaults are taken. A file that exists is not overwritten without --force.`,
		Example: `  sluice init flights.yaml
  sluice init flights.yaml --source kafka --target http --database postgres`,
		Args: cobra.ExactArgs(1),
		RunE: a.runE(func(_ context.Context, args []string) error {
			if err := a.answer(given); err != nil {
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
				return err
			}
			_, err = io.WriteString(file, newfile.Text(name, c))
			if err := errors.Join(err, file.Close()); err != nil {
				return err
			}
			fmt.Fprintf(a.out, "%s is written. Next, set the variables that it names:\n", args[0])
			for _, v := range newfile.Variables(c) {
				fmt.Fprintf(a.out, "  export %s=…\n", v)
			}
			fmt.Fprintf(a.out, "then correct the names in it, and run\n  sluice validate %s\n", args[0])
			return nil
		}),
	}
	for i, q := range questions {
		cmd.Flags().StringVar(&given[i], q.flag, "", fmt.Sprintf("one of `%s` (default %s)", strings.Join(q.words, ", "), q.fallback))
	}
	cmd.Flags().BoolVar(&force, "force", false, "overwrite the file if it exists")
	return cmd
}

// answer asks for what is not given, on a terminal, and checks the words.
func (a *app) answer(given []string) error {
	var input *bufio.Reader
	if term.IsTerminal(int(os.Stdin.Fd())) {
		input = bufio.NewReader(os.Stdin)
	}
	for i, q := range questions {
		if given[i] == "" && input != nil {
			fmt.Fprintf(a.screen, "%s (%s) [%s] ", q.text, strings.Join(q.words, ", "), q.fallback)
			line, err := input.ReadString('\n')
			if err != nil {
				return errors.New("no answer: nothing was written")
			}
			given[i] = strings.TrimSpace(line)
		}
		given[i] = cmp.Or(given[i], q.fallback)
		known := false
		for _, word := range q.words {
			known = known || word == given[i]
		}
		if !known {
			return usage.Errorf("--%s %s: write one of %s", q.flag, given[i], strings.Join(q.words, ", "))
		}
	}
	return nil
}
