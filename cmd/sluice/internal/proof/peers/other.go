//go:build !unix

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "peers: needs a Unix system: it kills processes and reads their processor time from the kernel")
	os.Exit(1)
}
