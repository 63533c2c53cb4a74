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
	"github.com/sluice-go/sluice/autoscale/target/containerapp"
	"github.com/sluice-go/sluice/autoscale/target/cosmos"
	"github.com/sluice-go/sluice/autoscale/target/kubernetes"
	"github.com/sluice-go/sluice/autoscale/target/sqldatabase"
	"github.com/sluice-go/sluice/autoscale/target/webhook"
	"github.com/sluice-go/sluice/autoscale/target/workers"
	"github.com/sluice-go/sluice/internal/config/strictyaml"
	"github.com/sluice-go/sluice/pipeline"
)

func (c *Config) readTarget(n strictyaml.Node) {
	c.places["target"] = n.Place()
	c.values = append(c.values, n.Values()...)
	if c.ofWorkers = n.Has("workers"); !c.ofWorkers { // those have a directory of their own
		c.claims = append(c.claims, claim{what: "the same target", id: n.Digest(), place: n.Place()})
	}
	c.target = exactlyOne(n, "target", map[string]func(strictyaml.Node) opener[autoscale.Target]{
		"workers":      c.readWorkers,
		"command":      readCommand,
		"webhook":      readWebhook,
		"kubernetes":   readKubernetes,
		"appservice":   readAppService,
		"containerapp": c.readContainerApp,
		"sqldatabase":  c.readSQLDatabase,
		"cosmos":       readCosmos,
	})
}

// bounds are the numbers of instances that a target can have. The zero value is none.
type bounds struct {
	least, most int
	what        string // of which there are so many
}

// limit sets the bounds, and makes the largest number the default of max if that is smaller
// than the default without it.
func (c *Config) limit(b bounds) {
	c.bounds = b
	if b.most < 10 {
		c.Resource.Limits.Max = b.most
	}
}

// check adds a problem if a resource's limits are beyond the bounds.
func (b bounds) check(rule strictyaml.Node, r *autoscale.Resource) {
	switch l := r.Limits; {
	case r.Rule == nil || b.most == 0:
	case l.Min < b.least:
		rule.Fail("min is %d: the target has at least %d %s", l.Min, b.least, b.what)
	case l.Max > b.most:
		rule.Fail("max is %d: the target has at most %d %s", l.Max, b.most, b.what)
	}
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

func (c *Config) readContainerApp(n strictyaml.Node) opener[autoscale.Target] {
	a := containerapp.Config{Replicas: containerapp.Exact}
	ok := n.Object(strictyaml.Keys{
		"subscription":   func(n strictyaml.Node) { n.Text(&a.Subscription) },
		"resource_group": func(n strictyaml.Node) { n.Text(&a.ResourceGroup) },
		"app":            func(n strictyaml.Node) { n.Text(&a.App) },
		"replicas": func(n strictyaml.Node) {
			n.OneOf((*string)(&a.Replicas), string(containerapp.Exact), string(containerapp.Min), string(containerapp.Max))
		},
	}, "subscription", "resource_group", "app")
	if !ok {
		return nil
	}
	least, most := a.Replicas.Bounds()
	c.limit(bounds{least, most, "replicas"})
	return withoutClose(func() (_ *containerapp.Target, err error) {
		if a.Credential, err = credential("default"); err != nil {
			return nil, err
		}
		return containerapp.New(&a)
	})
}

func (c *Config) readSQLDatabase(n strictyaml.Node) opener[autoscale.Target] {
	var d sqldatabase.Config
	ok := n.Object(strictyaml.Keys{
		"subscription":   func(n strictyaml.Node) { n.Text(&d.Subscription) },
		"resource_group": func(n strictyaml.Node) { n.Text(&d.ResourceGroup) },
		"server":         func(n strictyaml.Node) { n.Text(&d.Server) },
		"database":       func(n strictyaml.Node) { n.Text(&d.Database) },
		"objectives": func(n strictyaml.Node) {
			if n.Texts(sqldatabase.MaxObjectives, &d.Objectives) {
				check(n, sqldatabase.CheckObjectives(d.Objectives))
			}
		},
	}, "subscription", "resource_group", "server", "database", "objectives")
	if !ok {
		return nil
	}
	c.limit(bounds{1, len(d.Objectives), "service objectives"})
	return withoutClose(func() (_ *sqldatabase.Target, err error) {
		if d.Credential, err = credential("default"); err != nil {
			return nil, err
		}
		return sqldatabase.New(&d)
	})
}

// check adds an error to the file.
func check(n strictyaml.Node, err error) {
	if err != nil {
		n.Fail("%w", err)
	}
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
