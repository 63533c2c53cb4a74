// Package pgstore keeps leases, checkpoints and dead letters in PostgreSQL 13
// or later, in the database that the handler writes to.
//
//	store, err := pgstore.Open(ctx, os.Getenv("DATABASE_URL"), nil)
//	consumer, err := sluice.New(source, store.Leases(), sluice.Transactional(store, handler), nil)
//
// A handler gets a [pgx.Tx], which sqlc's queries, River's InsertTx and similar accept as it is.
// [Insert] writes many rows by COPY. The store commits, not the handler.
//
// # A step
//
// [Store.Commit] takes two round trips besides the handler's own: BEGIN with the lock of the
// checkpoint's row, which is the fence; and the dead letters, the move of the checkpoint and
// COMMIT. A step with redrives takes a third, in which their rows are counted. COMMIT is carried
// out only if the move has changed exactly one row in the transaction that holds the lock. Every
// transaction that can still commit holds it, and a [Store.Claim], which needs it, reads the final
// state.
//
// The transaction that a handler gets refuses what would end it. A handler can end it all the same,
// by the connection that [pgx.Tx.Conn] returns. That is found, whatever the handler does next: the
// checkpoint has not moved, the error is [driver.ErrHandlerEnded], and the engine halts the
// partition.
//
// Transactions run at READ COMMITTED, whatever the role's default is, because there the fence sees
// the newest row after it has waited for it. A handler that needs more locks rows (SELECT … FOR
// UPDATE). It must use SET LOCAL for settings: a plain SET stays with the connection.
//
// # Without a transaction
//
// For sluice.AtLeastOnce the same store keeps checkpoints and dead letters, which are written apart
// from the events' effects. [Store.Advance] is one statement, fenced by owner, epoch and position;
// [Store.Park] stores any number of dead letters in one transaction, before an Advance passes their
// events. A group may change from one delivery to the other.
//
// # Paused owners
//
// An owner that is paused or disconnected inside a transaction holds the row. A Claim waits for
// [Config.LockTimeout] and then terminates that session (pg_terminate_backend), which a role may do
// to its own sessions. It terminates no session of another user, which may be no consumer: it waits for
// ten times as long, and returns an error that names that session. The server itself terminates sessions
// that idle in a step's transaction for longer than [Config.LeaseFor].
//
// # Silent and replaced servers
//
// [Store.Commit] bounds each of its own round trips by a third of [Config.LeaseFor]. If the answer to
// a COMMIT does not come by then, its outcome is unknown, and the engine claims again. All other
// methods return when their context ends. A connection that has not answered is closed. The pools that
// [Open] and [Connect] make also detect that the network drops their packets (on Linux by
// TCP_USER_TIMEOUT, elsewhere by keep-alives), and close a connection whose server turns out to accept
// no writes: after a failover the next one reaches the new primary, if the URL names both servers and
// says target_session_attrs=read-write, or if the address has moved. A pool given to [New] has the
// settings of its maker.
//
// # Poolers
//
// Nothing depends on the session, so a pooler in transaction mode may be between store and server.
// PgBouncer refuses the TCP settings that [Open] and [Connect] ask for (SQLSTATE 08P01), unless its
// ignore_startup_parameters names them; they then do without these, and without prepared
// statements. If it names them, and has no max_prepared_statements, the URL needs
// default_query_exec_mode=cache_describe.
//
// # Entra ID
//
// Azure's servers accept a token of Entra ID as a password, for about an hour:
//
//	credential, err := azidentity.NewDefaultAzureCredential(nil)
//	store, err := pgstore.Open(ctx, "postgres://identity@contoso.postgres.database.azure.com/orders?sslmode=verify-full", &pgstore.Config{
//		Password: func(ctx context.Context) (string, error) {
//			token, err := credential.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{pgstore.AzureScope}})
//			return token.Token, err
//		},
//	})
package pgstore
