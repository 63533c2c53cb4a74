package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/cmd/sluice/internal/move"
	"github.com/sluice-go/sluice/cmd/sluice/internal/usage"
	"github.com/sluice-go/sluice/pipeline"
)

// namingStores is a paragraph of help.
const namingStores = `

A program that uses the library has no pipeline file. Name its store, and the consumer
group whose checkpoints it keeps there, in place of --config:

  --database env:DATABASE_URL --namespace NAME.servicebus.windows.net --hub flights
  --blob CONTAINER-URL --namespace NAME.servicebus.windows.net --hub flights --group $Default

--database takes sqlite:PATH or a URL as in a pipeline file; env:NAME takes it from an
environment variable. The credentials for --blob are those of checkpoints import. With a
topic of Kafka, --namespace is the id of the cluster and --group the name in kafka.Config.
The names must be those of the program (sluice.Group), in the same case.`

// storeFlags name a store, for programs without a pipeline file.
type storeFlags struct {
	database, blob, prefix string
	namespace, hub, group  string
}

func (s *storeFlags) add(f *pflag.FlagSet) {
	f.StringVar(&s.database, "database", "", "instead of --config: the `URL` of the database of a program that uses the library, or env:NAME")
	f.StringVar(&s.blob, "blob", "", "instead of --config: the `URL` of the container of such a program")
	f.StringVar(&s.prefix, "prefix", "", "with --blob: `prefix` of the blobs' names, such as sluice/")
	f.StringVar(&s.namespace, "namespace", "", "with --database or --blob: the `host` name of the hub's namespace, or the id of the Kafka cluster")
	f.StringVar(&s.hub, "hub", "", "with --database or --blob: the `name` of the hub or topic")
	f.StringVar(&s.group, "group", "", "with --database or --blob: the consumer `group` (default $Default)")
}

// otherWay returns the flags of a command that name its store, or its log, in another way than its
// command line does: their variables, which may be set for other commands, are not read.
func otherWay(flags *pflag.FlagSet, lookup func(string) (string, bool)) []string {
	byFile, byStore := []string{"config", "stage"}, []string{"database", "blob"}
	names := []string{"prefix", "namespace", "hub", "group"}
	byArgument := false
	switch {
	case flags.Lookup("from") != nil && flags.Lookup("config") != nil: // peek
		byStore, names, byArgument = sourceFlags, nil, flags.NArg() > 0
	case flags.Lookup("database") == nil:
		return nil
	}
	changed := func(flag string) bool { return flags.Changed(flag) }
	set := func(flag string) bool { value, _ := lookup(variableOf(flag)); return value != "" }
	switch {
	case slices.ContainsFunc(byStore, changed):
		return byFile
	case slices.ContainsFunc(byFile, changed), byArgument:
		return append(byStore, names...)
	case !slices.ContainsFunc(byStore, set):
		return names
	}
	return nil
}

// given reports whether a store is named. It checks the flags, together with those of a pipeline
// file.
func (s *storeFlags) given(config, stage string) (bool, error) {
	stored := s.database != "" || s.blob != ""
	switch {
	case !stored && config == "":
		return false, usage.Errorf("name the pipeline: pass --config PIPELINE.yaml; for a program that uses the library --database or --blob, --namespace and --hub")
	case stored && (config != "" || stage != ""):
		return true, usage.Errorf("--database and --blob name the store of a program without a pipeline file: leave out --config and --stage, or these")
	case s.database != "" && s.blob != "":
		return true, usage.Errorf("--database and --blob exclude each other")
	case s.prefix != "" && s.blob == "":
		return stored, usage.Errorf("--prefix goes with --blob")
	case stored && (s.namespace == "" || s.hub == ""):
		return true, usage.Errorf("--namespace and --hub are missing: pass those of the program's sluice.Group")
	case !stored && (s.namespace != "" || s.hub != "" || s.group != ""):
		return false, usage.Errorf("--namespace, --hub and --group go with --database or --blob: the pipeline file names its own")
	}
	return stored, nil
}

// open opens the store.
func (s *storeFlags) open(ctx context.Context) (*pipeline.Stores, error) {
	group := sluice.Group{Namespace: s.namespace, Topic: s.hub, Name: cmp.Or(s.group, "$Default")}
	if s.blob != "" {
		at := pipeline.BlobConnection{Container: s.blob, Prefix: s.prefix}
		if !strings.Contains(s.blob, "sig=") {
			at.Connection = os.Getenv(move.StorageEnv)
			at.Entra = at.Connection == "" && strings.HasPrefix(s.blob, "https://")
		}
		stores, err := pipeline.OpenContainer(ctx, at, group)
		return stores, flagError("--blob", err)
	}
	address := s.database
	if variable, ok := strings.CutPrefix(address, "env:"); ok {
		if address = strings.TrimSpace(os.Getenv(variable)); address == "" {
			return nil, usage.Errorf("--database env:%s: the environment variable is not set", variable)
		}
	}
	stores, err := pipeline.OpenDatabase(ctx, address, group)
	return stores, flagError("--database", err)
}

// flagError names the flag that an error is about.
func flagError(flag string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", flag, err)
}
