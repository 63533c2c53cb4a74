package main

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-go/sluice/cmd/sluice/internal/records"
	"github.com/sluice-go/sluice/cmd/sluice/internal/textfile"
	"github.com/sluice-go/sluice/cmd/sluice/internal/upload"
	"github.com/sluice-go/sluice/cmd/sluice/internal/usage"
)

// inputFlags say how send reads files.
type inputFlags struct{ encoding, delimiter string }

func (i *inputFlags) add(f *pflag.FlagSet) {
	names := make([]string, len(textfile.Encodings))
	for n, e := range textfile.Encodings {
		names[n] = string(e)
	}
	f.StringVar(&i.encoding, "encoding", "", "`name` of the files' encoding: "+strings.Join(names, ", ")+" (default utf-8)")
	f.StringVar(&i.delimiter, "delimiter", "", "`character` between the columns of CSV, or tab; files are read as CSV then (default a comma)")
}

// apply sets how files are read, unless a report says it.
func (i *inputFlags) apply(cmd *cobra.Command, to *upload.Destination) (err error) {
	if cmd.Flags().Changed("encoding") {
		if to.Input.Encoding, err = textfile.ParseEncoding(i.encoding); err != nil {
			return usage.Errorf("--encoding %v", err)
		}
	}
	if cmd.Flags().Changed("delimiter") {
		var d records.Delimiter
		if d, err = records.ParseDelimiter(i.delimiter); err != nil {
			return usage.Errorf("--delimiter %v", err)
		}
		to.Input.Delimiter = d
	}
	return nil
}
