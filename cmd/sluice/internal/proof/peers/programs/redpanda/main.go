// Command redpanda is Redpanda Connect with the components that the comparison needs:
// it takes the flags of the full program, such as run FILE.
package main

import (
	"context"

	"github.com/redpanda-data/benthos/v4/public/service"

	_ "github.com/lib/pq" // the driver that its documentation names for PostgreSQL
	_ "github.com/redpanda-data/benthos/v4/public/components/io"
	_ "github.com/redpanda-data/benthos/v4/public/components/pure"
	_ "github.com/redpanda-data/connect/v4/public/components/kafka"
	_ "github.com/redpanda-data/connect/v4/public/components/sql/base"
)

func main() { service.RunCLI(context.Background()) }
