package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// manPages writes the manual pages that packages ship.
func (a *app) manPages() *cobra.Command {
	cmd := &cobra.Command{
		Use:    "man DIR",
		Short:  "Write manual pages, one for each command, into a directory",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
	}
	cmd.RunE = a.runE(func(_ context.Context, args []string) error {
		if err := os.MkdirAll(args[0], 0o755); err != nil {
			return err
		}
		return writeManPages(args[0], cmd.Root())
	})
	return cmd
}

func writeManPages(dir string, cmd *cobra.Command) error {
	if cmd.Hidden || cmd.IsAdditionalHelpTopicCommand() {
		return nil
	}
	path := filepath.Join(dir, manName(cmd)+".1")
	if err := os.WriteFile(path, []byte(manPage(cmd)), 0o644); err != nil {
		return err
	}
	for _, member := range cmd.Commands() {
		if err := writeManPages(dir, member); err != nil {
			return err
		}
	}
	return nil
}

func manName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// manPage returns a command's manual page, in the macros of man(7).
func manPage(cmd *cobra.Command) string {
	cmd.InitDefaultHelpFlag()
	var b strings.Builder
	section := func(name string) { fmt.Fprintf(&b, ".SH %s\n", name) }
	fmt.Fprintf(&b, ".TH %q 1 \"\" %q \"Sluice\"\n", strings.ToUpper(manName(cmd)), "sluice "+built().Version)
	section("NAME")
	fmt.Fprintf(&b, "%s \\- %s\n", roff(manName(cmd)), roff(cmd.Short))
	section("SYNOPSIS")
	fmt.Fprintf(&b, ".B %s\n", roff(cmd.UseLine()))
	section("DESCRIPTION")
	text := cmd.Long
	if text == "" {
		text = cmd.Short + "."
	}
	literal := false // lines with an indent are tables and examples
	for line := range strings.SplitSeq(text, "\n") {
		if indented := strings.HasPrefix(line, " "); indented != literal && line != "" {
			literal = indented
			b.WriteString(map[bool]string{true: ".PP\n.nf\n", false: ".fi\n"}[literal])
		}
		if line == "" && !literal {
			line = ".PP"
		} else {
			line = roff(line)
		}
		b.WriteString(line + "\n")
	}
	if literal {
		b.WriteString(".fi\n")
	}
	writeManFlags(&b, "OPTIONS", cmd.LocalFlags())
	writeManFlags(&b, "GLOBAL OPTIONS", cmd.InheritedFlags())
	if cmd.Example != "" {
		section("EXAMPLES")
		fmt.Fprintf(&b, ".nf\n%s\n.fi\n", roff(cmd.Example))
	}
	var others []string
	if cmd.HasParent() {
		others = append(others, manName(cmd.Parent()))
	}
	for _, member := range cmd.Commands() {
		if member.IsAvailableCommand() {
			others = append(others, manName(member))
		}
	}
	if len(others) > 0 {
		section("SEE ALSO")
		for i, name := range others {
			others[i] = fmt.Sprintf(".BR %s (1)", roff(name))
		}
		b.WriteString(strings.Join(others, " ,\n") + "\n")
	}
	return b.String()
}

func writeManFlags(b *strings.Builder, title string, flags *pflag.FlagSet) {
	if !flags.HasAvailableFlags() {
		return
	}
	fmt.Fprintf(b, ".SH %s\n", title)
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		value, text := pflag.UnquoteUsage(f)
		if value != "" {
			name += " " + value
		}
		if d := f.DefValue; d != "" && d != "false" && d != "0" && d != "[]" && !strings.Contains(text, "(default") {
			text += fmt.Sprintf(" (default %s)", d)
		}
		fmt.Fprintf(b, ".TP\n.B %s\n%s\n", roff(name), roff(text))
	})
}

// roff escapes text: no character of it is taken for a request.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "`", `\(ga`, "'", `\(aq`).Replace(text)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") {
			lines[i] = `\&` + line
		}
	}
	var b strings.Builder
	for _, r := range strings.Join(lines, "\n") {
		if r < utf8.RuneSelf {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, `\[u%04X]`, r)
		}
	}
	return b.String()
}
