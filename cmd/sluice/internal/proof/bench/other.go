//go:build !unix

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "bench: needs a Unix system: it reads the processor time and the memory of processes from the kernel")
	os.Exit(1)
}
