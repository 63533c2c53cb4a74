package pgstore_test

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-go/sluice/pgstore"
	"github.com/sluice-go/sluice/storetest"
)

// door is a handler's way out of its transaction.
type door = func(ctx context.Context, tx pgx.Tx) error

// execs runs SQL on the connection of a handler's transaction, which nothing watches.
func execs(sql string) door {
	return func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Conn().Exec(ctx, sql)
		return err
	}
}

// execsBy executes SQL on the transaction.
func execsBy(sql string) door {
	return func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Exec(ctx, sql); return err }
}

// past are the ways that the store cannot bar.
var past = map[string]door{
	"COMMIT":           execs(`COMMIT`),
	"COMMIT AND CHAIN": execs(`COMMIT AND CHAIN`),
	"COMMIT, BEGIN":    execs(`COMMIT; BEGIN READ WRITE`),
	"COMMIT, an error": execs(`COMMIT; SELECT 1/0`),
	"COMMIT, aborted":  execs(`COMMIT; BEGIN READ WRITE; SELECT 1/0`),
	"ROLLBACK":         execs(`ROLLBACK`),
	"ROLLBACK, BEGIN":  execs(`ROLLBACK; BEGIN READ WRITE`),
	// The step's own transaction is rolled back; what is committed is another's.
	"ROLLBACK, COMMIT":             execs(`ROLLBACK; BEGIN READ WRITE; INSERT INTO effects VALUES ('more'); COMMIT`),
	"ROLLBACK, COMMIT, BEGIN":      execs(`ROLLBACK; BEGIN READ WRITE; INSERT INTO effects VALUES ('more'); COMMIT; BEGIN READ WRITE`),
	"ROLLBACK, COMMIT, aborted":    execs(`ROLLBACK; BEGIN READ WRITE; INSERT INTO effects VALUES ('more'); COMMIT; BEGIN READ WRITE; SELECT 1/0`),
	"COMMIT of one without number": execs(`COMMIT; BEGIN READ WRITE; SELECT 1`),
	"the protocol": func(ctx context.Context, tx pgx.Tx) error {
		return tx.Conn().PgConn().Exec(ctx, `COMMIT`).Close()
	},
	"a prepared statement": func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Conn().PgConn().Prepare(ctx, "rogue", `COMMIT`, nil); err != nil {
			return err
		}
		err := tx.Conn().PgConn().ExecPrepared(ctx, "rogue", nil, nil, nil).Read().Err
		tx.Conn().PgConn().Exec(ctx, `DEALLOCATE rogue`).Close()
		return err
	},
	"a batch": func(ctx context.Context, tx pgx.Tx) error {
		var b pgx.Batch
		b.Queue(`SELECT 1`)
		b.Queue(`COMMIT`)
		return tx.Conn().SendBatch(ctx, &b).Close()
	},
	"BeginFunc": func(ctx context.Context, tx pgx.Tx) error {
		return pgx.BeginFunc(ctx, tx.Conn(), func(inner pgx.Tx) error { return put(ctx, inner, "nested") })
	},
	"BeginFunc, rolled back": func(ctx context.Context, tx pgx.Tx) error {
		return pgx.BeginFunc(ctx, tx.Conn(), func(pgx.Tx) error { return pgx.ErrTxCommitRollback })
	},
	// In this encoding the backslash is the second byte of a letter.
	"a text that an encoding hides": func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SET LOCAL client_encoding = 'SJIS'`); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "SELECT E'\x83\x5c'; COMMIT; BEGIN READ WRITE; SELECT ''")
		return err
	},
}

// barred are the ways that the store or PostgreSQL bars.
var barred = map[string]door{
	"ROLLBACK, aborted": execs(`ROLLBACK; BEGIN READ WRITE; SELECT 1/0`), // nothing is committed
	"Commit":            func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) },
	"Rollback":          func(ctx context.Context, tx pgx.Tx) error { return tx.Rollback(ctx) },
	"Exec":              execsBy(`COMMIT`),
	"END":               execsBy(`END`),
	"ABORT":             execsBy(`ABORT`),
	"AND CHAIN":         execsBy(`COMMIT AND CHAIN`),
	"two statements":    execsBy(`COMMIT; BEGIN`),
	"BEGIN":             execsBy(`BEGIN`),
	"COMMIT PREPARED":   execsBy(`COMMIT PREPARED 'nowhere'`),
	"RELEASE":           execsBy(`RELEASE nowhere`),
	"ROLLBACK TO":       execsBy(`ROLLBACK TO nowhere`),
	"its own savepoint": execsBy(`SAVEPOINT a; ROLLBACK TO a; RELEASE a`),
	"CALL":              execsBy(`CREATE OR REPLACE PROCEDURE ends() LANGUAGE plpgsql AS 'BEGIN COMMIT; END'; CALL ends()`),
	"CALL on Conn":      execs(`CREATE OR REPLACE PROCEDURE ends() LANGUAGE plpgsql AS 'BEGIN COMMIT; END'; CALL ends()`),
	"Query": func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `COMMIT`)
		rows.Close()
		return err
	},
	"QueryRow": func(ctx context.Context, tx pgx.Tx) error { return tx.QueryRow(ctx, `COMMIT`).Scan() },
	"SendBatch": func(ctx context.Context, tx pgx.Tx) error {
		var b pgx.Batch
		b.Queue(`SELECT 1`)
		b.Queue(`COMMIT`)
		return tx.SendBatch(ctx, &b).Close()
	},
	"Prepare": func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Prepare(ctx, "ends", `COMMIT`); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "ends")
		return err
	},
	"a procedure": func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `DO $$ BEGIN COMMIT; END $$`)
		return err
	},
	"a text that hides it": func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SET LOCAL standard_conforming_strings = off`); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `SELECT 'a\''; COMMIT; BEGIN READ WRITE; SELECT ''`)
		return err
	},
	"a savepoint": func(ctx context.Context, tx pgx.Tx) error {
		return pgx.BeginFunc(ctx, tx, func(inner pgx.Tx) error { _, err := inner.Exec(ctx, `COMMIT`); return err })
	},
}

// doors are all of them.
func doors(s *pgstore.Store) (list []storetest.Door[pgx.Tx]) {
	for name, end := range past {
		list = append(list, storetest.Door[pgx.Tx]{Name: name, End: end})
	}
	for name, end := range barred {
		list = append(list, storetest.Door[pgx.Tx]{Name: name, End: end, Refused: true})
	}
	return append(list, storetest.Door[pgx.Tx]{
		Name: "PREPARE TRANSACTION", End: execs(`PREPARE TRANSACTION 'rogue'`),
		Close: func(ctx context.Context) error { _, err := s.Pool().Exec(ctx, `ROLLBACK PREPARED 'rogue'`); return err },
	})
}
