package sqlstore

import (
	"context"
	"errors"

	"github.com/sluice-go/sluice/internal/keyed"
)

func (mysqlDialect) keyFits(context.Context, querier, *keyed.Write) error { return nil }
func (mysqlDialect) upsert(context.Context, *Tx, *keyed.Write) error      { return errors.ErrUnsupported }
