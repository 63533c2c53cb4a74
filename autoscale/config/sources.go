package config

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/autoscale/source/azuremonitor"
	"github.com/sluice-go/sluice/autoscale/source/httpjson"
	"github.com/sluice-go/sluice/autoscale/source/prometheus"
	"github.com/sluice-go/sluice/autoscale/source/servicebus"
	"github.com/sluice-go/sluice/autoscale/source/sqlquery"
	"github.com/sluice-go/sluice/internal/config/strictyaml"
	"github.com/sluice-go/sluice/pipeline"
)

func readSource(n strictyaml.Node) opener[autoscale.Source] {
	return exactlyOne(n, "source", map[string]func(strictyaml.Node) opener[autoscale.Source]{
		"servicebus":    readServiceBus,
		"lag":           readLag,
		"sql":           readSQL,
		"prometheus":    readPrometheus,
		"http":          readHTTP,
		"azure_monitor": readAzureMonitor,
	})
}

func readServiceBus(n strictyaml.Node) opener[autoscale.Source] {
	var c servicebus.Config
	var credentialName string
	ok := n.Object(strictyaml.Keys{
		"connection":   readSecret("SERVICEBUS_CONNECTION_STRING", &c.Connection),
		"namespace":    func(n strictyaml.Node) { n.Text(&c.Namespace) },
		"credential":   readCredential(&credentialName),
		"queue":        func(n strictyaml.Node) { n.Text(&c.Queue) },
		"topic":        func(n strictyaml.Node) { n.Text(&c.Topic) },
		"subscription": func(n strictyaml.Node) { n.Text(&c.Subscription) },
	})
	if !ok {
		return nil
	}
	switch {
	case (c.Connection != "") == (c.Namespace != ""):
		n.Fail("needs one of connection (write ${SERVICEBUS_CONNECTION_STRING}) and namespace (with credential: default)")
		return nil
	case (c.Namespace != "") != (credentialName != ""):
		n.Fail("namespace needs credential: default, and the reverse")
		return nil
	case (c.Queue != "") == (c.Topic != "") || (c.Topic != "") != (c.Subscription != ""):
		n.Fail("needs queue, or topic and subscription")
		return nil
	}
	return func(context.Context, *Options) (autoscale.Source, closer, error) {
		var err error
		if c.Credential, err = credential(credentialName); err != nil {
			return nil, nil, err
		}
		s, err := servicebus.New(&c)
		if err != nil {
			return nil, nil, err
		}
		return s, noClose, nil
	}
}

func readSQL(n strictyaml.Node) opener[autoscale.Source] {
	var database, query string
	ok := n.Object(strictyaml.Keys{
		"database": func(n strictyaml.Node) {
			if readSecret("DATABASE_URL", &database)(n); database == "" {
				return
			}
			db, err := pipeline.OpenReader(database)
			if err != nil {
				n.Fail("%w", err)
				return
			}
			db.Close()
		},
		"query": func(n strictyaml.Node) { n.Verbatim(&query) },
	}, "database", "query")
	if !ok {
		return nil
	}
	return func(context.Context, *Options) (autoscale.Source, closer, error) {
		db, err := pipeline.OpenReader(database)
		if err != nil {
			return nil, nil, err
		}
		db.SetMaxOpenConns(1)
		return sqlquery.New(db, query, nil), func(context.Context) error { return db.Close() }, nil
	}
}

func readPrometheus(n strictyaml.Node) opener[autoscale.Source] {
	var address, query string
	var c prometheus.Config
	ok := n.Object(strictyaml.Keys{
		"url":           readURL(&address),
		"query":         func(n strictyaml.Node) { n.Verbatim(&query) },
		"authorization": readAuthorization(&c.Header),
	}, "url", "query")
	if !ok {
		return nil
	}
	return func(context.Context, *Options) (autoscale.Source, closer, error) {
		s, err := prometheus.New(address, query, &c)
		if err != nil {
			return nil, nil, err
		}
		return s, noClose, nil
	}
}

func readHTTP(n strictyaml.Node) opener[autoscale.Source] {
	var address, pointer string
	var header http.Header
	ok := n.Object(strictyaml.Keys{
		"url":           readURL(&address),
		"pointer":       func(n strictyaml.Node) { n.Verbatim(&pointer) },
		"authorization": readAuthorization(&header),
	}, "url")
	if !ok {
		return nil
	}
	if pointer != "" && !strings.HasPrefix(pointer, "/") {
		n.Fail("pointer %q: write a JSON pointer, such as /queue/waiting", pointer)
		return nil
	}
	return func(context.Context, *Options) (autoscale.Source, closer, error) {
		s, err := httpjson.New(address, pointer, &httpjson.Config{Header: header})
		if err != nil {
			return nil, nil, err
		}
		return s, noClose, nil
	}
}

func readAzureMonitor(n strictyaml.Node) opener[autoscale.Source] {
	var c azuremonitor.Config
	ok := n.Object(strictyaml.Keys{
		"resource": func(n strictyaml.Node) {
			if n.Text(&c.Resource) {
				check(n, azuremonitor.CheckResource(c.Resource))
			}
		},
		"metric": func(n strictyaml.Node) {
			if n.Text(&c.Metric) {
				check(n, azuremonitor.CheckMetric(c.Metric))
			}
		},
		"namespace":   func(n strictyaml.Node) { n.Text(&c.Namespace) },
		"filter":      func(n strictyaml.Node) { n.Text(&c.Filter) },
		"aggregation": func(n strictyaml.Node) { n.OneOf(&c.Aggregation, azuremonitor.Aggregations...) },
		"window": func(n strictyaml.Node) {
			if n.Duration(&c.Window) {
				check(n, azuremonitor.CheckWindow(c.Window))
			}
		},
	}, "resource", "metric")
	if !ok {
		return nil
	}
	return func(context.Context, *Options) (autoscale.Source, closer, error) {
		var err error
		if c.Credential, err = credential("default"); err != nil {
			return nil, nil, err
		}
		s, err := azuremonitor.New(&c)
		if err != nil {
			return nil, nil, err
		}
		return s, noClose, nil
	}
}

// readURL reads an http or https URL.
func readURL(to *string) func(strictyaml.Node) {
	return func(n strictyaml.Node) {
		var text string
		if readSecret("URL", &text)(n); text == "" {
			return
		}
		u, err := url.Parse(text)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			n.Fail("%s: write a URL, http://… or https://…", n.Shown())
			return
		}
		*to = text
	}
}
