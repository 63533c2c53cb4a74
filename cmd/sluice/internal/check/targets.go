package check

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sluice-go/sluice/autoscale/config"
	"github.com/sluice-go/sluice/blobstore"
	"github.com/sluice-go/sluice/pipeline"
)

// The environment variables that hold keys which have no place in an address.
const (
	CosmosKeyVariable = "COSMOS_KEY"
	StorageVariable   = "AZURE_STORAGE_CONNECTION_STRING"
)

// Targets are the systems that a command is to check.
type Targets struct {
	Systems []System
	Secrets []string // keys, passwords and signatures of their addresses
	Names   []string // of hosts, hubs, databases and so on

	opts  Options
	env   func(string) string
	close []func(context.Context) error // of an autoscaler's sources and target
}

// NewTargets returns an empty list. The environment's variables are those of env, or of the process
// if it is nil.
func NewTargets(opts Options, env func(string) string) *Targets {
	if env == nil {
		env = os.Getenv
	}
	return &Targets{opts: opts, env: env}
}

// resolve reads env:NAME from the environment, so that keys stay out of the list of processes.
func (t *Targets) resolve(text string) (string, error) {
	name, ok := strings.CutPrefix(text, "env:")
	if !ok {
		return text, nil
	}
	value := strings.TrimSpace(t.env(name))
	if value == "" {
		return "", fmt.Errorf("the environment variable %s is not set", name)
	}
	return value, nil
}

func defaultCredential() (azcore.TokenCredential, error) {
	credential, err := azidentity.NewDefaultAzureCredential(nil)
	if err != nil {
		return nil, fmt.Errorf("default credential: %w", err)
	}
	return credential, nil
}

// AddSource adds a hub. The text is a connection string, env:NAME, or the host name of a namespace,
// with Entra ID.
func (t *Targets) AddSource(text, hub, consumerGroup string) error {
	text, err := t.resolve(text)
	if err != nil {
		return err
	}
	if strings.HasPrefix(text, "kafka") && strings.Contains(text, "://") {
		return errors.New("a topic of Kafka is checked by its pipeline: pass --config PIPELINE.yaml")
	}
	a := HubAddress{Hub: hub, ConsumerGroup: consumerGroup}
	if strings.Contains(text, "=") {
		a.ConnectionString = text
	} else {
		a.Host = strings.Trim(strings.TrimPrefix(text, "sb://"), "/")
	}
	return t.addHub(a)
}

func (t *Targets) addHub(a HubAddress) (err error) {
	if a.Host != "" {
		if a.Credential, err = defaultCredential(); err != nil {
			return err
		}
	} else if props, err := azeventhubs.ParseConnectionString(a.ConnectionString); err == nil {
		for _, secret := range []*string{props.SharedAccessKey, props.SharedAccessSignature} {
			if secret != nil {
				t.Secrets = append(t.Secrets, *secret)
			}
		}
		t.Names = append(t.Names, hosts(props.FullyQualifiedNamespace)...)
		if props.EntityPath != nil {
			t.Names = append(t.Names, *props.EntityPath)
		}
	}
	t.Names = append(t.Names, hosts(a.Host)...)
	t.Names = append(t.Names, a.Hub)
	t.addProxy(a.Proxy)
	system, err := OpenHub(a, t.opts)
	return t.add(system, err)
}

// hosts are the host with its port, without, and the first part of its name, which Azure's errors
// quote alone.
func hosts(host string) []string {
	u := url.URL{Host: host}
	list := []string{host, u.Hostname()}
	if first, _, ok := strings.Cut(u.Hostname(), "."); ok && net.ParseIP(u.Hostname()) == nil {
		list = append(list, first)
	}
	return list
}

// note notes the names in a URL: its host, and its path.
func (t *Targets) note(address string) {
	if u, err := url.Parse(address); err == nil {
		t.Names = append(append(t.Names, hosts(u.Host)...), strings.Trim(u.Path, "/"))
	}
}

// addProxy notes the names and the password of a proxy.
func (t *Targets) addProxy(proxy *url.URL) {
	if proxy == nil {
		return
	}
	t.Names = append(t.Names, hosts(proxy.Host)...)
	t.Names = append(t.Names, proxy.User.Username())
	if password, ok := proxy.User.Password(); ok {
		t.Secrets = append(t.Secrets, password)
	}
}

func (t *Targets) add(s System, err error) error {
	if err == nil {
		t.Systems = append(t.Systems, s)
	}
	return err
}

// StoreForms says how a store is written.
const StoreForms = "sqlite:PATH, postgres://user@host/database, mysql:// or mariadb://user@host:3306/database, sqlserver://user@host:1433?database=name, https://ACCOUNT.blob.core.windows.net/CONTAINER, the name of a container, https://ACCOUNT.documents.azure.com:443/dbs/DATABASE/colls/CONTAINER, or env:NAME for one of these in an environment variable"

// AddStore adds a database, a storage account's container, or one of Cosmos DB.
func (t *Targets) AddStore(text string) error {
	text, err := t.resolve(text)
	if err != nil {
		return err
	}
	scheme, rest, _ := strings.Cut(text, ":")
	switch scheme {
	case "sqlite":
		return t.addSQLite(strings.TrimPrefix(rest, "//"))
	case "postgres", "postgresql":
		return t.addPostgres(text)
	case "mysql", "mariadb":
		return t.addServer(text, OpenMySQL)
	case "sqlserver":
		return t.addServer(text, OpenSQLServer)
	case "http", "https":
		if u, err := url.Parse(text); err == nil && strings.HasPrefix(u.Path, "/dbs/") {
			return t.addCosmosLink(u)
		}
		return t.addBlob(text, "", blobstore.Config{})
	}
	if rest == "" && text != "" && !strings.ContainsAny(text, "/=?&;") {
		return t.addBlob(text, "", blobstore.Config{})
	}
	return errors.New("write " + StoreForms)
}

func (t *Targets) addSQLite(path string) error {
	if path == "" {
		return errors.New("sqlite: has no path: write sqlite:PATH")
	}
	t.Names = append(t.Names, path)
	system, err := OpenSQLite(path, t.opts)
	return t.add(system, err)
}

func (t *Targets) addPostgres(text string) error {
	if cfg, err := pgxpool.ParseConfig(text); err == nil {
		c := cfg.ConnConfig
		t.Secrets = append(t.Secrets, c.Password)
		t.Names = append(t.Names, hosts(c.Host)...)
		t.Names = append(t.Names, c.User, c.Database)
	}
	system, err := OpenPostgres(text, t.opts)
	return t.add(system, err)
}

// addServer adds a database that is named by a URL.
func (t *Targets) addServer(text string, open func(address string, opts Options) (System, error)) error {
	t.noteServer(text)
	system, err := open(text, t.opts)
	return t.add(system, err)
}

// noteServer notes the names and the password in the URL of a database.
func (t *Targets) noteServer(text string) {
	if u, err := url.Parse(text); err == nil {
		password, _ := u.User.Password()
		q := u.Query()
		t.Secrets = append(t.Secrets, password, q.Get("password"))
		t.Names = append(t.Names, u.User.Username(), q.Get("user id"), q.Get("database"))
	}
	t.note(text)
}

// addBlob adds a container. Without a signature and without a connection string, the environment's
// connection string counts, or Entra ID.
func (t *Targets) addBlob(where, connection string, cfg blobstore.Config) error {
	return t.addContainer(where, connection, BlobAddress{Config: cfg})
}

func (t *Targets) addContainer(where, connection string, a BlobAddress) (err error) {
	cfg := a.Config
	u, parseErr := url.Parse(where)
	signed := parseErr == nil && u.Query().Get("sig") != ""
	cfg.ConnectionString = connection
	if !signed && connection == "" && cfg.Credential == nil {
		if cfg.ConnectionString = t.env(StorageVariable); cfg.ConnectionString == "" && strings.HasPrefix(where, "https://") {
			if cfg.Credential, err = defaultCredential(); err != nil {
				return err
			}
		}
	}
	if signed {
		t.Secrets = append(t.Secrets, u.Query().Get("sig"), url.QueryEscape(u.Query().Get("sig")))
	}
	t.note(where)
	for part := range strings.SplitSeq(cfg.ConnectionString, ";") {
		name, value, _ := strings.Cut(part, "=")
		switch strings.ToLower(name) {
		case "accountkey", "sharedaccesssignature":
			t.Secrets = append(t.Secrets, value)
		case "accountname":
			t.Names = append(t.Names, value)
		case "blobendpoint":
			t.note(value)
		}
	}
	a.Container, a.Config = where, cfg
	system, err := OpenBlob(a, t.opts)
	return t.add(system, err)
}

// addCosmosLink adds the container of a URL that ends with /dbs/DATABASE/colls/CONTAINER.
func (t *Targets) addCosmosLink(u *url.URL) error {
	parts := strings.Split(strings.Trim(u.Path, "/"), "/")
	if len(parts) != 4 || parts[2] != "colls" || u.RawQuery != "" || u.User != nil {
		return errors.New("not a container of Cosmos DB: write https://ACCOUNT.documents.azure.com:443/dbs/DATABASE/colls/CONTAINER, and put the key into " + CosmosKeyVariable)
	}
	return t.addCosmos(CosmosAddress{Endpoint: u.Scheme + "://" + u.Host + "/", Key: strings.TrimSpace(t.env(CosmosKeyVariable)), Database: parts[1], Container: parts[3]})
}

func (t *Targets) addCosmos(a CosmosAddress) (err error) {
	if a.Key == "" {
		if a.Credential, err = defaultCredential(); err != nil {
			return err
		}
	}
	t.Secrets = append(t.Secrets, a.Key)
	t.note(a.Endpoint)
	t.Names = append(t.Names, a.Database, a.Container)
	system, err := OpenCosmos(a, t.opts)
	return t.add(system, err)
}

func (t *Targets) addKafka(c *pipeline.KafkaConnection) error {
	t.Secrets = append(t.Secrets, c.Secrets...)
	for _, broker := range c.Brokers {
		t.Names = append(t.Names, hosts(broker)...)
	}
	t.Names = append(t.Names, c.Topic, c.ProgressGroup, c.User)
	system, err := OpenKafka(c, t.opts)
	return t.add(system, err)
}

func (t *Targets) addHTTP(c *pipeline.HTTPConnection) error {
	if u, err := url.Parse(c.URL); err == nil {
		for _, values := range u.Query() {
			t.Secrets = append(t.Secrets, values...)
		}
	}
	t.note(c.URL)
	for _, values := range c.Config.Header {
		t.Secrets = append(t.Secrets, values...)
	}
	for _, key := range c.Config.Keys {
		t.Secrets = append(t.Secrets, string(key))
	}
	system, err := OpenHTTP(c)
	return t.add(system, err)
}

// AddPipeline adds what a pipeline connects to. A hub is read in a consumer group of its own.
func (t *Targets) AddPipeline(c pipeline.Connections, consumerGroup string) error {
	var err error
	if h := c.Hub; h != nil {
		err = t.addHub(HubAddress{
			ConnectionString: h.Connection, Host: h.Host, Hub: h.Name, ConsumerGroup: consumerGroup,
			TLSConfig: h.Config.TLSConfig, OverWebSocket: h.Config.OverWebSocket, Proxy: h.Config.Proxy,
		})
	}
	if c.Kafka != nil {
		err = t.addKafka(c.Kafka)
	}
	if err != nil {
		return fmt.Errorf("source: %w", err)
	}
	if c.Outbox != "" {
		t.noteServer(c.Outbox)
	}
	if c.Database != "" {
		if err := t.AddStore(c.Database); err != nil {
			return fmt.Errorf("database: %w", err)
		}
	}
	for i, b := range []*pipeline.BlobConnection{c.Blob, c.ProgressBlobs} {
		if b == nil {
			continue
		}
		a := BlobAddress{Config: blobstore.Config{Prefix: b.Prefix}, Mirror: i == 1}
		if b.Entra {
			if a.Config.Credential, err = defaultCredential(); err != nil {
				return err
			}
		}
		if err := t.addContainer(b.Container, b.Connection, a); err != nil {
			return fmt.Errorf("%s: %w", [...]string{"leases", "progress_blobs"}[i], err)
		}
	}
	for _, h := range c.HTTP {
		if err := t.addHTTP(h); err != nil {
			return fmt.Errorf("HTTP endpoint: %w", err)
		}
	}
	if c.Cosmos == nil {
		return nil
	}
	err = t.addCosmos(CosmosAddress{Endpoint: c.Cosmos.Endpoint, Key: c.Cosmos.Key, Database: c.Cosmos.Database, Container: c.Cosmos.Container})
	if err != nil {
		return fmt.Errorf("target: %w", err)
	}
	return nil
}

// AddAutoscaler adds the metrics and the target of an autoscaler's file.
func (t *Targets) AddAutoscaler(ctx context.Context, path string) error {
	c, err := config.Load(path)
	if err != nil {
		return err
	}
	for _, value := range slices.Concat(c.Values(), c.Resource.Metrics, []string{c.Resource.Name}) {
		for _, name := range append(strings.Split(value, "/"), value) {
			if len(name) > 3 { // shorter ones are numbers, durations and words of the file's language
				t.Names = append(t.Names, name)
			}
		}
	}
	sources, done, err := c.OpenMetrics(ctx)
	if err != nil {
		return err
	}
	t.close = append(t.close, done)
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		t.Systems = append(t.Systems, OpenMetric(name, sources[name]))
	}
	target, done, err := c.OpenTarget(ctx)
	if err != nil {
		return err
	}
	t.close = append(t.close, done)
	if target != nil {
		t.Systems = append(t.Systems, OpenScaling(c.Resource.Name, target, c.Resource.Limits, t.opts))
	}
	return nil
}

// Addresses says that the addresses are valid.
func (t *Targets) Addresses() (list List) {
	for _, s := range t.Systems {
		list = append(list, found(OK, "address", "valid; --connect asks whether it answers").subject(s.Name()))
	}
	return list
}

// Close closes the connections.
func (t *Targets) Close() {
	for _, s := range slices.Backward(t.Systems) {
		closeWithin(s)
	}
	ctx, cancel := context.WithTimeout(context.Background(), giveUpAfter)
	defer cancel()
	for _, done := range slices.Backward(t.close) {
		_ = done(ctx) // what was to be reported is in the report
	}
}
