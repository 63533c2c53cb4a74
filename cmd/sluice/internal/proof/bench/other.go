//go:build !unix

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "bench: needs a Unix system: it asks the kernel what processes have used")
	os.Exit(1)
}
