package connector

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// database is where the rows go.
type database struct {
	kind   string // postgres, mysql, sqlserver or sqlite; empty: not known
	url    string // as the file has it
	schema string // of tables without one
	folds  bool   // names are not quoted there, so that the database lowers them
}

const passwordVariable = "DATABASE_PASSWORD"

// readDatabase translates connection.url. Its driver's parameters are not those of Go's.
func (t *translator) readDatabase() error {
	_, user := t.first("connection.user", "connection.username")
	password := t.take("connection.password")
	text := t.take("connection.url")
	if text == "" {
		return errors.New("it has no connection.url")
	}
	if isVariable(text) {
		t.db = database{url: "${DATABASE_URL}"}
		t.different("connection.url", "it is %s there: set DATABASE_URL to the same address, as in postgres://user:password@host/database", outside(text))
		return nil
	}
	scheme, rest, _ := strings.Cut(strings.TrimPrefix(text, "jdbc:"), ":")
	var err error
	switch strings.ToLower(scheme) {
	case "postgresql":
		err = t.server("postgres", rest, user, password)
	case "mysql", "mariadb":
		err = t.server("mysql", rest, user, password)
	case "sqlserver":
		err = t.sqlServer(rest, user, password)
	case "sqlite":
		t.db = database{kind: "sqlite", url: "sqlite:" + variables(cmp.Or(rest, "sluice.db"))}
	default:
		return fmt.Errorf("connection.url: Sluice writes to PostgreSQL, MySQL, MariaDB, SQL Server and SQLite, not to %.20q", scheme)
	}
	if err != nil {
		return err
	}
	t.done("connection.url", "database")
	t.readQuotes()
	return nil
}

// readQuotes translates whether names are quoted. Sluice quotes them always, so names that
// PostgreSQL would have lowered are written in lower case.
func (t *translator) readQuotes() {
	key, quotes := t.first("quote.identifiers", "quote.sql.identifiers", "sql.quote.identifiers")
	quoted := !among(quotes, "false", "never")
	if quotes == "" {
		quoted = t.kind != debezium
	}
	t.db.folds = !quoted && t.db.kind == "postgres"
	if t.db.folds {
		t.done(key, "names are not quoted there: they are in lower case, as PostgreSQL takes them")
	} else if !quoted {
		t.different(key, "names are not quoted there, and always here: write them as the database has them")
	}
}

// name is a table or column as the database has it.
func (d *database) name(name string) string {
	if d.folds {
		return strings.ToLower(name)
	}
	return name
}

// host is one or more hosts, which may have variables.
var host = regexp.MustCompile(`^[A-Za-z0-9._:,\[\]${}<>-]+$`)

// secured are the parameters of MySQL's and MariaDB's drivers that demand TLS.
var secured = []string{"useSSL", "requireSSL", "sslMode", "ssl-mode"}

// server translates a URL with a path and parameters.
func (t *translator) server(kind, rest, user, password string) error {
	rest, query, _ := strings.Cut(rest, "?")
	rest = strings.TrimPrefix(rest, "//")
	hosts, name, _ := strings.Cut(rest, "/")
	parameters, err := parse(query, "&")
	if err != nil {
		return err
	}
	if login, after, found := cutLast(hosts, "@"); found {
		hosts = after
		name, secret, _ := strings.Cut(login, ":")
		user, password = cmp.Or(user, name), cmp.Or(password, secret)
	}
	hosts = cmp.Or(hosts, "localhost")
	if !host.MatchString(hosts) {
		return errors.New("connection.url: the host is not understood")
	}
	user, password = cmp.Or(user, parameters["user"]), cmp.Or(password, parameters["password"])
	kept := ""
	for _, key := range sorted(parameters) {
		value := parameters[key]
		switch {
		case key == "user" || key == "password":
		case kind == "postgres" && key == "sslmode":
			kept = "?sslmode=" + variables(value)
		case kind == "postgres" && key == "ssl" && !strings.EqualFold(value, "false"):
			kept = cmp.Or(kept, "?sslmode=verify-full")
		case kind == "postgres" && key == "currentSchema":
			t.db.schema, _, _ = strings.Cut(value, ",")
		case kind == "postgres" && key == "stringtype":
			t.different("connection.url", "parameter stringtype: texts are always cast to the column's type")
		case kind == "mysql" && among(key, secured...) && among(value, "true", "REQUIRED", "VERIFY_CA", "VERIFY_IDENTITY"):
			kept = "?tls=true"
		case kind == "mysql" && among(key, secured...):
		default:
			t.different("connection.url", "parameter %s of the driver is not translated", named(key))
		}
	}
	t.db.kind, t.db.url = kind, kind+"://"+credentials(user, password)+variables(hosts)+"/"+variables(name)+kept
	return nil
}

// sqlServer translates host:port;key=value;…
func (t *translator) sqlServer(rest, user, password string) error {
	hosts, query, _ := strings.Cut(strings.TrimPrefix(rest, "//"), ";")
	parameters, err := parse(query, ";")
	if err != nil {
		return err
	}
	hosts = cmp.Or(hosts, "localhost")
	if !host.MatchString(hosts) {
		return errors.New("connection.url: the host is not understood: write HOST:PORT without an instance")
	}
	name, kept := "", ""
	for _, key := range sorted(parameters) {
		value := parameters[key]
		switch strings.ToLower(key) {
		case "databasename", "database":
			name = variables(value)
		case "user", "username":
			user = cmp.Or(user, value)
		case "password":
			password = cmp.Or(password, value)
		case "encrypt":
			kept += "&encrypt=" + variables(value)
		case "trustservercertificate":
			kept += "&TrustServerCertificate=" + variables(value)
		default:
			t.different("connection.url", "parameter %s of the driver is not translated", named(key))
		}
	}
	t.db.kind, t.db.url = "sqlserver", "sqlserver://"+credentials(user, password)+variables(hosts)+"?database="+name+kept
	return nil
}

// credentials are the user, and a variable for the password.
func credentials(user, password string) string {
	switch {
	case user == "" && password == "":
		return ""
	case isVariable(user):
		user = variables(user)
	default:
		user = url.UserPassword(user, "").String()
		user = strings.TrimSuffix(user, ":")
	}
	if password == "" {
		return user + "@"
	}
	if isVariable(password) {
		return user + ":" + variables(password) + "@"
	}
	return user + ":${" + passwordVariable + "}@"
}

func parse(query, separator string) (map[string]string, error) {
	parameters := map[string]string{}
	for part := range strings.SplitSeq(query, separator) {
		key, value, _ := strings.Cut(part, "=")
		if key = strings.TrimSpace(key); key == "" {
			continue
		}
		if separator == "&" && !strings.Contains(value, "${") {
			decoded, err := url.QueryUnescape(value)
			if err != nil {
				return nil, errors.New("connection.url: a parameter is not understood")
			}
			value = decoded
		}
		parameters[key] = strings.TrimSpace(value)
	}
	return parameters, nil
}

// cutLast cuts at the last separator.
func cutLast(text, separator string) (before, after string, found bool) {
	i := strings.LastIndex(text, separator)
	if i < 0 {
		return text, "", false
	}
	return text[:i], text[i+len(separator):], true
}

func sorted(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
