package newfile

import (
	"fmt"
	"slices"
	"testing"

	"github.com/sluice-go/sluice/pipeline"
)

func TestEveryChoiceIsValid(t *testing.T) {
	const hub = "Endpoint=sb://%s.servicebus.windows.net/;SharedAccessKeyName=k;SharedAccessKey=aw=="
	values := map[string]string{
		"EVENTHUB_CONNECTION_STRING": fmt.Sprintf(hub, "one"), "NEXT_CONNECTION_STRING": fmt.Sprintf(hub, "two"),
		"SERVICEBUS_CONNECTION_STRING": fmt.Sprintf(hub, "three"), "KAFKA_BROKERS": "one:9092", "NEXT_BROKERS": "two:9092",
		"COSMOS_ENDPOINT": "https://contoso.documents.azure.com:443/", "COSMOS_KEY": "aw==", "TARGET_URL": "https://example.com/events",
	}
	n := 0
	for _, source := range Sources {
		for _, target := range Targets {
			for _, database := range Databases {
				for _, partitions := range append(slices.Clone(Partitions), "2") {
					for _, name := range []string{"flights", "order events", "sluice_x", "été"} {
						c := Choice{Source: source, Target: target, Database: database, Partitions: partitions}
						values["DATABASE_URL"] = schemes[database]
						var asked []string
						_, err := pipeline.Parse("p.yaml", []byte(Text(name, c)), func(v string) (string, bool) {
							asked = append(asked, v)
							value, ok := values[v]
							return value, ok
						})
						if err != nil {
							t.Errorf("%+v: %v\n%s", c, err, Text(name, c))
						}
						named := Variables(c)
						for _, v := range asked {
							if !slices.Contains(named, v) {
								t.Errorf("%+v: needs %s, names %v", c, v, named)
							}
						}
						n++
					}
				}
			}
		}
	}
	if n == 0 {
		t.Fatal("nothing was tried")
	}
}
