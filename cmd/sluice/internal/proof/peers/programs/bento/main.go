// Command bento is Bento with the components that the comparison needs: it takes
// the flags of the full program, such as -c FILE.
package main

import (
	"context"

	"github.com/warpstreamlabs/bento/public/service"

	_ "github.com/lib/pq" // the driver that Bento's documentation names for PostgreSQL
	_ "github.com/warpstreamlabs/bento/public/components/io"
	_ "github.com/warpstreamlabs/bento/public/components/kafka"
	_ "github.com/warpstreamlabs/bento/public/components/pure"
	_ "github.com/warpstreamlabs/bento/public/components/sql/base"
)

func main() { service.RunCLI(context.Background()) }
