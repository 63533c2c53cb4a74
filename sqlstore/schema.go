package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// The components that have a schema of their own.
const (
	storeComponent = "store"
	leaseComponent = "leases"
)

// step is one migration; the nth makes version n.
type step struct {
	sql string
	// oldest is the oldest version whose programs still work after the step. An
	// additive step does not change it.
	oldest int
}

// migrate brings a component's schema to the version of this program, unless it has that version or
// a later compatible one. It reads the version first, without a lock, so that a start does not wait
// for a transaction in progress. Of several processes that start at once one migrates; the others
// wait for it and find the new version.
func migrate(ctx context.Context, db *sql.DB, d dialect, component string) error {
	steps := d.steps(component)
	if len(steps) == 0 {
		return nil
	}
	version, err := readVersion(ctx, db, d, component, len(steps))
	if err != nil || version >= len(steps) {
		return err
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if lock := d.statements().SchemaLock; lock != "" {
		var ours bool
		if _, err := one(ctx, conn, lock, nil, &ours); err != nil {
			return err
		}
		if !ours {
			return errors.New("another process has been migrating its tables for a minute: wait for it, or end its session")
		}
		defer unlock(ctx, conn, d)
	}
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if version, err = readVersion(ctx, tx, d, component, len(steps)); err != nil {
		return err
	}
	if version >= len(steps) {
		return nil
	}
	for version < len(steps) {
		version++
		for _, statement := range migration(d, component, version) {
			if _, err := tx.ExecContext(ctx, statement); err != nil {
				return fmt.Errorf("migrate %s to version %d: %w", component, version, err)
			}
		}
	}
	return tx.Commit()
}

// current returns an error unless a component's schema has a version that this program can work
// with. It changes nothing.
func current(ctx context.Context, db *sql.DB, d dialect, component string) error {
	known := len(d.steps(component))
	if known == 0 {
		return nil
	}
	version, err := readVersion(ctx, db, d, component, known)
	if err == nil && version < known {
		err = fmt.Errorf("its schema for %s is version %d, and this program needs %d: apply the migrations from %s %d on (`sluice migrate`, or the files of sqlstore.Migrations), or leave NoMigrate out",
			component, version, known, component, version+1)
		if version == 0 { // MySQL does not show a table without a right on it
			err = fmt.Errorf("%w; if they are applied, grant this user SELECT on sluice_schema", err)
		}
	}
	return err
}

// unlock releases the lock, which belongs to the session and not to a transaction. If the server
// does not answer, the driver closes the connection, which releases it too.
func unlock(ctx context.Context, conn *sql.Conn, d dialect) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	conn.ExecContext(ctx, d.statements().SchemaUnlock)
}

// readVersion reads a component's version, 0 if it has none, and refuses one that
// this program cannot work with.
func readVersion(ctx context.Context, q querier, d dialect, component string, known int) (int, error) {
	var tables, version, oldest int
	if _, err := one(ctx, q, d.statements().SchemaFound, nil, &tables); err != nil || tables == 0 {
		return 0, err
	}
	if _, err := one(ctx, q, d.statements().SchemaVersion, []any{component}, &version, &oldest); err != nil {
		return 0, err
	}
	if oldest > known {
		return 0, &schemaError{component, version, oldest, known}
	}
	return version, nil
}

// SchemaVersions returns the versions of a store's tables that this program makes, by the kind of
// database. The table sluice_schema has the version of the tables that are there.
func SchemaVersions() (sqlite, mysql, sqlServer int) {
	return len(sqliteStoreSteps), len(mysqlSteps(storeComponent, "")), len(mssqlStoreSteps)
}

// schemaError means that the program is too old for the schema.
type schemaError struct {
	component              string
	version, oldest, known int
}

func (e *schemaError) Error() string {
	return fmt.Sprintf("its schema for %s is version %d, which needs programs that know version %d or later, and this one knows %d: upgrade it",
		e.component, e.version, e.oldest, e.known)
}
