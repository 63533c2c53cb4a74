package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// commandPage returns the reference of all commands in Markdown.
func commandPage(root *cobra.Command) []byte {
	var b strings.Builder
	b.WriteString("# Commands\n\n<!-- Made by `UPDATE=1 go test ./cmd/sluice -run TestCommandPageIsCurrent`; do not edit. -->\n")
	var visit func(*cobra.Command)
	visit = func(c *cobra.Command) {
		c.InitDefaultHelpFlag()
		text := c.Long
		if text == "" {
			text = c.Short + "."
		}
		fmt.Fprintf(&b, "\n## %s\n\n```\n%s\n```\n", c.CommandPath(), strings.TrimSpace(text))
		if c.Runnable() && !c.HasSubCommands() {
			fmt.Fprintf(&b, "\nUsage: `%s`\n", c.UseLine())
		}
		if c.Example != "" {
			fmt.Fprintf(&b, "\nExamples:\n\n```sh\n%s\n```\n", unindented(c.Example))
		}
		if flags := c.LocalFlags().FlagUsages(); flags != "" {
			fmt.Fprintf(&b, "\nFlags:\n\n```\n%s```\n", flags)
		}
		for _, child := range c.Commands() {
			if child.IsAvailableCommand() && child.Name() != "help" {
				visit(child)
			}
		}
	}
	visit(root)
	return []byte(b.String())
}

// unindented removes the indentation of examples.
func unindented(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimPrefix(line, "  ")
	}
	return strings.Join(lines, "\n")
}
