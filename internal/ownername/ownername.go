// Package ownername makes the names under which processes own leases and read partitions.
package ownername

import (
	"crypto/rand"
	"fmt"
	"os"
	"strings"
)

// New makes a name that no other process has: host, process id and a random part. It has at most
// 57 characters; Event Hubs takes a receiver name of at most 64.
func New() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%.40s-%d-%.8s", host, os.Getpid(), strings.ToLower(rand.Text()))
}
