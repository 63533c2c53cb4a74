package postgres

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// CopyRow finds the row that an error of a COPY of n rows is about: the last that was read, if that could
// not be encoded, else the one that PostgreSQL names as the error's context.
func CopyRow(err error, table string, last, n int) (row int, found bool) {
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		return 0, false
	}
	row = -1
	if EncodingFailed(e) {
		row = last
	} else {
		for line := range strings.Lines(e.Where) {
			if rest, found := strings.CutPrefix(line, "COPY "+table+", line "); found {
				digits := rest[:len(rest)-len(strings.TrimLeft(rest, "0123456789"))]
				if number, err := strconv.Atoi(digits); err == nil {
					row = number - 1
				}
			}
		}
	}
	return row, row >= 0 && row < n
}

// RowsLeftOut returns the error of a COPY that has written fewer rows than it was given: without an error
// the events of the others would be lost.
func RowsLeftOut(written int64, of int) error {
	return fmt.Errorf("%d of %d rows were written: a trigger or a rule of the table leaves out or moves the others: use INSERT statements (in a pipeline target.statement), or change the trigger", written, of)
}
