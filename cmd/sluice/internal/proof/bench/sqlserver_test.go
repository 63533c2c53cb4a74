//go:build sqlserver && unix

package main

func init() { tested = append(tested, "sqlserver") }
