package main

import (
	"encoding/base64"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-go/sluice/cmd/sluice/internal/usage"
	"github.com/sluice-go/sluice/emulator"
)

// cosmosFlags are the flags of the emulator's Cosmos DB account.
type cosmosFlags struct {
	cfg        emulator.CosmosConfig
	key        string
	texts      []string
	containers []emulator.CosmosContainer
}

func (c *cosmosFlags) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&c.cfg.Listen, "cosmos", "", "`address` of a Cosmos DB account, such as 127.0.0.1:8081 (default none)")
	f.StringArrayVar(&c.texts, "cosmos-container", nil, "a container, `DATABASE/NAME:/KEY`, or :/KEY,/KEY for a hierarchical key; can be repeated")
	f.IntVar(&c.cfg.Throughput, "cosmos-ru", 0, "throughput of each container in `RU` per second, divided equally among its physical partitions (default no limit)")
	f.IntVar(&c.cfg.Partitions, "cosmos-partitions", 0, "`number` of physical partitions of each container (default one per 10000 RU/s)")
	f.StringVar(&c.key, "cosmos-key", "", "account key in `BASE64` (default the public key of Microsoft's emulator)")
	f.StringVar(&c.cfg.Control, "cosmos-control", "", "loopback `address` of the endpoint for fault injection, for tests (default none)")
}

// parse checks the flags. Its errors do not contain the key.
func (c *cosmosFlags) parse() error {
	if c.cfg.Listen == "" {
		if len(c.texts) > 0 || c.key != "" || c.cfg.Control != "" || c.cfg.Throughput != 0 || c.cfg.Partitions != 0 {
			return usage.Errorf("the account's address is missing: pass --cosmos ADDRESS, such as --cosmos 127.0.0.1:8081")
		}
		return nil
	}
	if c.cfg.Throughput < 0 {
		return usage.Errorf("--cosmos-ru %d: must be a positive number of RU per second", c.cfg.Throughput)
	}
	if c.cfg.Partitions < 0 || c.cfg.Partitions > 1024 {
		return usage.Errorf("--cosmos-partitions %d: must be 1 to 1024", c.cfg.Partitions)
	}
	if c.key != "" {
		if secret, err := base64.StdEncoding.DecodeString(c.key); err != nil || len(secret) == 0 {
			return usage.Errorf("--cosmos-key: not base64")
		}
		c.cfg.Keys = []string{c.key}
	}
	for _, text := range c.texts {
		names, keys, ok := strings.Cut(text, ":")
		database, name, both := strings.Cut(names, "/")
		if !ok || !both || database == "" || name == "" || strings.Contains(name, "/") {
			return usage.Errorf("--cosmos-container %s: write DATABASE/NAME:/KEY", text)
		}
		paths := strings.Split(keys, ",")
		for _, p := range paths {
			if len(p) < 2 || p[0] != '/' {
				return usage.Errorf("--cosmos-container %s: the path of a partition key begins with /", text)
			}
		}
		if len(paths) > 3 {
			return usage.Errorf("--cosmos-container %s: a partition key has at most three paths", text)
		}
		c.containers = append(c.containers, emulator.CosmosContainer{Database: database, Name: name, KeyPaths: paths})
	}
	return nil
}

// start returns nil if no account was asked for.
func (c *cosmosFlags) start() (*emulator.Cosmos, error) {
	if c.cfg.Listen == "" {
		return nil, nil
	}
	return emulator.StartCosmos(c.containers, &c.cfg)
}
