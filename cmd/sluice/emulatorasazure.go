package main

import (
	"github.com/spf13/cobra"

	"github.com/sluice-go/sluice/cmd/sluice/internal/usage"
	"github.com/sluice-go/sluice/emulator"
)

// asAzureFlags are the flags of the behaviours that the emulator copies from Azure.
type asAzureFlags struct {
	list string
	seed uint64
}

func (s *asAzureFlags) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&s.list, "as-azure", "", "be as strict and inexact as Azure: all of it, or the `NAMES` in docs/reference/emulator.md, separated by commas (default none)")
	f.Lookup("as-azure").NoOptDefVal = "all"
	f.Uint64Var(&s.seed, "as-azure-seed", 0, "`number` that decides what --as-azure does at random")
}

// args accepts the list as an argument: that of a flag which also works without a value
// must otherwise be joined to it by an equals sign.
func (s *asAzureFlags) args(cmd *cobra.Command, args []string) error {
	if len(args) == 1 && s.list == "all" {
		return nil
	}
	return cobra.NoArgs(cmd, args)
}

// parse returns nil if no behaviour was asked for.
func (s *asAzureFlags) parse(args []string) (*emulator.AsAzure, error) {
	list := s.list
	if len(args) == 1 {
		list = args[0]
	}
	if list == "" {
		return nil, nil
	}
	azure, err := emulator.ParseAsAzure(list, s.seed)
	if err != nil {
		return nil, usage.Errorf("--as-azure: %v", err)
	}
	return azure, nil
}
