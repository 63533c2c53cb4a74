package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-go/sluice/cmd/sluice/internal/upload"
	"github.com/sluice-go/sluice/cmd/sluice/internal/usage"
)

// reportFlags are the flags of the report of send.
type reportFlags struct{ report, resume string }

func (r *reportFlags) add(f *pflag.FlagSet) {
	f.StringVar(&r.report, "report", "", "write to this new `file` which records were sent and which were not (default none)")
	f.StringVar(&r.resume, "resume", "", "send what is missing according to this `file`, a report, and continue it")
}

// file is the name of the report.
func (r *reportFlags) file() string { return r.report + r.resume }

// apply checks the flags. With --resume it fills in the destination, and returns the files, of the
// report.
func (r *reportFlags) apply(cmd *cobra.Command, to *upload.Destination, files []string) ([]string, error) {
	given := cmd.Flags().Changed
	for _, name := range []string{"report", "resume"} {
		switch {
		case !given(name):
		case r.file() == "":
			return nil, usage.Errorf("--%s: must not be empty", name)
		case given("generate"):
			return nil, usage.Errorf("--%s: generated documents have no report: generate them again", name)
		case name == "report" && len(files) == 0:
			return nil, usage.Errorf("--report needs files: write standard input to a file first, so that the report can name its records")
		}
	}
	switch {
	case r.resume == "":
		return files, nil
	case r.report != "":
		return nil, usage.Errorf("--report and --resume exclude each other: --resume continues the report")
	}
	for _, name := range upload.DestinationFlags {
		if given(name) {
			return nil, usage.Errorf("--%s: --resume takes it from the report: leave it out", name)
		}
	}
	saved, names, err := upload.ReadReport(r.resume)
	if err != nil {
		return nil, err
	}
	connection, namespace, websocket := to.Connection, to.Namespace, to.WebSocket
	*to = *saved
	to.WebSocket = websocket
	switch {
	case connection != "" || namespace != "":
		to.Connection, to.Namespace = connection, namespace
	case to.Connection == upload.Withheld:
		return nil, usage.Errorf("--to is missing: the report does not hold the connection string, because it has a key")
	}
	if len(files) == 0 {
		files = names
	}
	return files, nil
}
