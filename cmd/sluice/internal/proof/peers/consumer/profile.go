package main

import (
	"errors"
	"os"
	"runtime/pprof"
)

// profile writes a CPU profile and a profile of allocations to files whose names
// begin with prefix, from now until finish is called. Without a prefix it does nothing.
func profile(prefix string) (finish func() error, err error) {
	if prefix == "" {
		return func() error { return nil }, nil
	}
	cpu, err := os.Create(prefix + "cpu.prof")
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(cpu); err != nil {
		return nil, errors.Join(err, cpu.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		allocs, err := os.Create(prefix + "allocs.prof")
		if err != nil {
			return errors.Join(err, cpu.Close())
		}
		return errors.Join(pprof.Lookup("allocs").WriteTo(allocs, 0), allocs.Close(), cpu.Close())
	}, nil
}
