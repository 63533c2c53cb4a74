//go:build mariadb && unix

package main

func init() { tested = append(tested, "mariadb") }
