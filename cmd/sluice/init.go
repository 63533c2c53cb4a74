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
	"strconv"
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
	number     bool // also accepts a number
}

var questions = []question{
	{"source", "Where do events come from?", newfile.Sources, "eventhub", false},
	{"target", "What is done with them?", newfile.Targets, "insert", false},
	{"database", "Which database holds checkpoints and dead letters?", newfile.Databases, "sqlite", false},
	{"partitions", "Which partitions does a process own?", newfile.Partitions, "all", true},
}

const aboutInit = `Write a new pipeline file with comments, which sluice check accepts once the
variables in it are set. On a terminal the command asks for what no flag states;
elsewhere the defaults are taken. A file that exists is not overwritten without --force.

With events to look at, the file has their columns: names, types, spellings of times,
compression, envelopes of Debezium and Kafka Connect, and a table for each type of events
whose shapes clearly differ. The command says what it guessed and why, and tries the file on
all of these events: which of them would become dead letters. Comments in the file have a
value of each column as an example. Events come from
  --sample FILE       JSON, CSV, GeoJSON or Capture's Avro, as sluice send reads it;
                      - is standard input; all of it, up to 1,000,000 records or 1 GiB
  --from-hub NAME     the newest --events events of a hub, or of a topic of Kafka with
  --from-topic NAME   --from kafka://HOST:9092: nothing is consumed, as in sluice peek

With --from-connector FILE, the JSON of a JDBC sink of Kafka Connect (Confluent's, Aiven's or
Debezium's), the file does what the connector does, exactly once. The command lists what it
translated and what it did not. Where that changes what is written, the file says so and does
not run before it is done. --from-topic NAME takes one of the connector's topics; --sample, or
--from with --from-topic, names records whose fields become the columns.

With --table and a database in --database, the values go to the columns of this table that
have the same names, whatever their case and signs; what is left to do is listed.`

func (a *app) initCommand() *cobra.Command {
	var force bool
	var connector string
	var guessed guessFlags
	given := make([]string, len(questions))
	var cmd *cobra.Command
	cmd = &cobra.Command{
		Use:   "init PIPELINE.yaml",
		Short: "Write a new pipeline file, with the columns of events to look at",
		Long:  aboutInit,
		Example: `  sluice init flights.yaml
  sluice init flights.yaml --source kafka --target http --database postgres
  sluice init flights.yaml --sample flights.csv
  sluice init flights.yaml --from-hub flights --database postgres
  sluice init flights.yaml --from kafka://127.0.0.1:9092 --from-topic flights
  sluice init flights.yaml --sample new.ndjson --table flights --database env:DATABASE_URL
  sluice init orders.yaml --from-connector sink.json --from kafka://127.0.0.1:9092 --from-topic orders`,
		Args: needs(1, 1, "name the file to write: pass PIPELINE.yaml"),
		RunE: a.runE(func(ctx context.Context, args []string) error {
			if cmd.Flags().Changed("from-connector") {
				if _, err := os.Lstat(args[0]); err == nil && !force {
					return existsAlready(args[0])
				}
				return a.initConnector(ctx, cmd, args[0], connector, force, &guessed)
			}
			address, err := guessed.take(cmd, given)
			if err != nil {
				return err
			}
			var input io.Reader
			if term.IsTerminal(int(os.Stdin.Fd())) && guessed.sample != "-" {
				input = os.Stdin
			}
			if err := a.answer(given, input); err != nil {
				return err
			}
			c := newfile.Choice{Source: given[0], Target: given[1], Database: given[2], Partitions: given[3]}
			if _, err := os.Lstat(args[0]); err == nil && !force {
				return existsAlready(args[0])
			}
			if guessed.enabled() {
				return a.initGuessed(ctx, args[0], force, c, &guessed, address)
			}
			if err := writeNew(args[0], newfile.Text(pipelineName(args[0]), c), force); err != nil {
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
		text := fmt.Sprintf("one of `%s` (default %s)", strings.Join(q.words, ", "), q.fallback)
		if q.flag == "database" {
			text += ", or its address as in a file, or env:NAME for one\nin an environment variable"
		}
		if q.number {
			text += ", or a number"
		}
		cmd.Flags().StringVar(&given[i], q.flag, "", text)
	}
	cmd.Flags().BoolVar(&force, "force", false, "overwrite the file if it exists")
	cmd.Flags().StringVar(&connector, "from-connector", "", "`file` with the configuration of a JDBC sink of Kafka Connect, or - for standard input")
	guessed.add(cmd.Flags())
	return cmd
}

// pipelineName is the name of the pipeline in a file.
func pipelineName(path string) string {
	return strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
}

func existsAlready(path string) error {
	return fmt.Errorf("%s exists already: name another file, or pass --force to overwrite it", path)
}

// writeNew writes a file, which must not exist without force.
func writeNew(path, text string, force bool) error {
	mode := os.O_WRONLY | os.O_CREATE | os.O_EXCL
	if force {
		mode = os.O_WRONLY | os.O_CREATE | os.O_TRUNC
	}
	file, err := os.OpenFile(path, mode, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return existsAlready(path)
	}
	if err != nil {
		return notThere(err, "make the directory first")
	}
	_, err = io.WriteString(file, text)
	return errors.Join(err, file.Close())
}

// answer asks for what is not given, and checks the words. A wrong answer is asked for once more. A
// nil input is no terminal: the defaults are taken.
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
	if slices.Contains(q.words, word) {
		return nil
	}
	if !q.number {
		return usage.Errorf("--%s %s: write one of %s", q.flag, word, strings.Join(q.words, ", "))
	}
	if n, err := strconv.Atoi(word); err != nil || n < 1 {
		return usage.Errorf("--%s %s: write a number, or one of %s", q.flag, word, strings.Join(q.words, ", "))
	}
	return nil
}
