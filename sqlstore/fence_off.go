//go:build sluice_unfenced

package sqlstore

import "regexp"

// A build with -tags sluice_unfenced must not be used: cmd/sluice/internal/proof/attack makes one, to
// see that it finds the duplicates.

var fence = regexp.MustCompile(`AND owner = (\?|@p\d+) AND epoch = (\?|@p\d+) AND sequence_number = (\?|@p\d+)`)

// The steps of servers' databases take any lease and position. The arguments are used all the same.
func init() {
	for _, s := range []*statements{mysqlStatements, mssqlStatements} {
		for _, query := range []*string{&s.Lock, &s.Move, &s.Stay} {
			if !fence.MatchString(*query) {
				panic("no fence in " + *query)
			}
			*query = fence.ReplaceAllString(*query, "AND $1 IS NOT NULL AND $2 IS NOT NULL AND $3 IS NOT NULL")
		}
	}
}
