package check

import (
	"testing"

	"github.com/sluice-go/sluice/internal/proof/sqlservertest"
)

func TestConnectSQLServer(t *testing.T) {
	address := sqlservertest.Database(t)
	examineServer(t, address, func(password string) string {
		const name = "check_reader"
		db := connect(t, address)
		execute(t, db, "IF SUSER_ID(N'"+name+"') IS NOT NULL DROP LOGIN "+name, "CREATE LOGIN "+name+" WITH PASSWORD = '"+password+"'",
			"CREATE USER "+name+" FOR LOGIN "+name, "GRANT SELECT ON sluice_schema TO "+name, "GRANT SELECT ON sluice_leases TO "+name)
		return name
	})
}
