package check

import (
	"net/url"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/internal/proof/mariadbtest"
)

func TestConnectMariaDB(t *testing.T) {
	address := mariadbtest.Database(t)
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	examineServer(t, address, func(password string) string {
		db, name := connect(t, address), "reader_"+strings.Trim(u.Path, "/")
		execute(t, db, "CREATE USER "+name+"@'%' IDENTIFIED BY '"+password+"'", "GRANT SELECT ON "+strings.Trim(u.Path, "/")+".* TO "+name+"@'%'")
		t.Cleanup(func() { execute(t, db, "DROP USER "+name+"@'%'") })
		return name
	})
}
