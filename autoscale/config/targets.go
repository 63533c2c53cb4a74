package config

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/autoscale/target/appservice"
	"github.com/sluice-go/sluice/autoscale/target/command"
	"github.com/sluice-go/sluice/autoscale/target/cosmos"
	"github.com/sluice-go/sluice/autoscale/target/kubernetes"
	"github.com/sluice-go/sluice/autoscale/target/webhook"
	"github.com/sluice-go/sluice/autoscale/target/workers"
	"github.com/sluice-go/sluice/internal/strictyaml"
	"github.com/sluice-go/sluice/pipeline"
)

func (c *Config) readTarget(n strictyaml.Node) {
	c.places["target"] = n.Place()
	if c.ofWorkers = n.Has("workers"); !c.ofWorkers { // those have a directory of their own
		c.claims = append(c.claims, claim{what: "the same target", id: n.Digest(), place: n.Place()})
	}
	c.target = exactlyOne(n, "target", map[string]func(strictyaml.Node) opener[autoscale.Target]{
		"workers":    c.readWorkers,
		"command":    readCommand,
		"webhook":    readWebhook,
		"kubernetes": readKubernetes,
		"appservice": readAppService,
		"cosmos":     readCosmos,
	})
}

func (c *Config) readWorkers(n strictyaml.Node) opener[autoscale.Target] {
	var path, program, directory string
	var grace time.Duration
	ok := n.Object(strictyaml.Keys{
		"pipeline":  func(n strictyaml.Node) { n.Text(&path) },
		"command":   func(n strictyaml.Node) { n.Verbatim(&program) },
		"directory": func(n strictyaml.Node) { n.Text(&directory) },
		"grace":     func(n strictyaml.Node) { n.Duration(&grace) },
	})
	if !ok {
		return nil
	}
	if (path != "") == (program != "") {
		n.Fail("needs one of pipeline and command")
		return nil
	}
	if directory != "" {
		c.claims = append(c.claims, claim{what: "the directory of workers " + directory, id: filepath.Clean(directory), place: n.Place()})
	}
	return func(_ context.Context, opts *Options) (autoscale.Target, closer, error) {
		if err := checkWorkers(path, opts.Log); err != nil {
			return nil, nil, err
		}
		if opts.dryRun { // opening the pool would start workers
			return &dryRunTarget{instances: c.Resource.Limits.Min}, noClose, nil
		}
		line := []string{"sh", "-c", "exec " + program}
		if path != "" {
			self, err := os.Executable()
			if err != nil {
				return nil, nil, fmt.Errorf("find the sluice program: %w", err)
			}
			line = []string{self, "run", path}
		}
		dir := directory
		if dir == "" {
			dir = c.Resource.Name + ".workers"
		}
		pool, err := workers.New(dir, line, &workers.Config{Instances: c.Resource.Limits.Min, Grace: grace, Log: opts.Log})
		if err != nil {
			return nil, nil, err
		}
		return pool, func(context.Context) error { return pool.Close() }, nil
	}
}

// checkWorkers reads the pipeline's file as its workers will, and logs a warning if
// they cannot share a hub. path is empty if the workers run another program.
func checkWorkers(path string, log *slog.Logger) error {
	if path == "" {
		return nil
	}
	f, err := pipeline.LoadFile(path)
	if err != nil {
		return err
	}
	for _, p := range f.Stages {
		if p.Partitions != sluice.Balanced && !p.Rollup && log != nil {
			log.Warn("workers cannot share partitions: write partitions: balanced in the pipeline's file", "pipeline", p.Name, "file", path)
		}
	}
	return nil
}

func readCommand(n strictyaml.Node) opener[autoscale.Target] {
	var count, scale string
	var c command.Config
	ok := n.Object(strictyaml.Keys{
		"count":   func(n strictyaml.Node) { n.Verbatim(&count) },
		"scale":   func(n strictyaml.Node) { n.Verbatim(&scale) },
		"timeout": func(n strictyaml.Node) { n.Duration(&c.Timeout) },
	}, "count", "scale")
	if !ok {
		return nil
	}
	return withoutClose(func() (*command.Target, error) {
		return command.New([]string{"sh", "-c", count}, []string{"sh", "-c", scale}, &c)
	})
}

func readWebhook(n strictyaml.Node) opener[autoscale.Target] {
	var address string
	var header http.Header
	ok := n.Object(strictyaml.Keys{
		"url":           readURL(&address),
		"authorization": readAuthorization(&header),
	}, "url")
	if !ok {
		return nil
	}
	return withoutClose(func() (*webhook.Target, error) { return webhook.New(address, &webhook.Config{Header: header}) })
}

func readKubernetes(n strictyaml.Node) opener[autoscale.Target] {
	var c kubernetes.Config
	ok := n.Object(strictyaml.Keys{
		"kind":       func(n strictyaml.Node) { n.OneOf(&c.Kind, "Deployment", "StatefulSet") },
		"name":       func(n strictyaml.Node) { n.Text(&c.Name) },
		"namespace":  func(n strictyaml.Node) { n.Text(&c.Namespace) },
		"kubeconfig": func(n strictyaml.Node) { n.Text(&c.Kubeconfig) },
		"context":    func(n strictyaml.Node) { n.Text(&c.Context) },
	}, "name")
	if !ok {
		return nil
	}
	return withoutClose(func() (*kubernetes.Target, error) { return kubernetes.New(&c) })
}

func readAppService(n strictyaml.Node) opener[autoscale.Target] {
	var c appservice.Config
	ok := n.Object(strictyaml.Keys{
		"subscription":   func(n strictyaml.Node) { n.Text(&c.Subscription) },
		"resource_group": func(n strictyaml.Node) { n.Text(&c.ResourceGroup) },
		"plan":           func(n strictyaml.Node) { n.Text(&c.Plan) },
	}, "subscription", "resource_group", "plan")
	if !ok {
		return nil
	}
	return withoutClose(func() (_ *appservice.Target, err error) {
		if c.Credential, err = credential("default"); err != nil {
			return nil, err
		}
		return appservice.New(&c)
	})
}

func readCosmos(n strictyaml.Node) opener[autoscale.Target] {
	var c cosmos.Config
	var credentialName string
	ok := n.Object(strictyaml.Keys{
		"endpoint":       readURL(&c.Endpoint),
		"key":            readKey("COSMOS_KEY", &c.Key),
		"credential":     readCredential(&credentialName),
		"subscription":   func(n strictyaml.Node) { n.Text(&c.Subscription) },
		"resource_group": func(n strictyaml.Node) { n.Text(&c.ResourceGroup) },
		"account":        func(n strictyaml.Node) { n.Text(&c.Account) },
		"database":       func(n strictyaml.Node) { n.Text(&c.Database) },
		"container":      func(n strictyaml.Node) { n.Text(&c.Container) },
		"unit":           func(n strictyaml.Node) { n.Int(&c.Unit, 100, autoscale.MaxInstances) },
	}, "database")
	if !ok {
		return nil
	}
	switch {
	case (c.Key != "") == (credentialName != ""):
		n.Fail("needs one of key (write ${COSMOS_KEY}) and credential: default")
		return nil
	case c.Key != "" && c.Endpoint == "":
		n.Fail("key needs endpoint")
		return nil
	case credentialName != "" && (c.Subscription == "" || c.ResourceGroup == "" || c.Account == "" && c.Endpoint == ""):
		n.Fail("credential needs subscription, resource_group and account: Cosmos DB accepts changes of throughput with Entra ID only through Azure Resource Manager")
		return nil
	}
	return withoutClose(func() (_ *cosmos.Target, err error) {
		if c.Credential, err = credential(credentialName); err != nil {
			return nil, err
		}
		return cosmos.New(&c)
	})
}

// withoutClose returns an opener of a target that needs no closing.
func withoutClose[T autoscale.Target](make func() (T, error)) opener[autoscale.Target] {
	return func(context.Context, *Options) (autoscale.Target, closer, error) {
		t, err := make()
		if err != nil {
			return nil, nil, err
		}
		return t, noClose, nil
	}
}
