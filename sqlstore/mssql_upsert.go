package sqlstore

import (
	"context"
	"errors"

	"github.com/sluice-go/sluice/internal/keyed"
)

func (mssqlDialect) keyFits(context.Context, querier, *keyed.Write) error { return nil }
func (mssqlDialect) upsert(context.Context, *Tx, *keyed.Write) error      { return errors.ErrUnsupported }
