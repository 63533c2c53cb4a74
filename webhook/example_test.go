package webhook_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicetest"
	"github.com/sluice-go/sluice/webhook"
)

// A receiver that does nothing but print. One with effects stores the source and the id of each
// event in the transaction of its effect: see docs/http.md.
func ExampleNew() {
	ctx := context.Background()
	received := make(chan struct{}, 2)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var events []struct {
			ID   string
			Data struct{ Delay int }
		}
		if err := json.NewDecoder(r.Body).Decode(&events); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		for _, e := range events {
			fmt.Println("event", e.ID, "delay", e.Data.Delay)
			received <- struct{}{}
		}
	}))
	defer receiver.Close()

	hub := sluicetest.NewHub(sluice.Group{Namespace: "contoso", Topic: "flights", Name: "$Default"}, 1)
	hub.Append("0", sluicetest.Bodies(`{"delay":5}`, `{"delay":7}`)...)
	sink, err := webhook.New(receiver.URL, &webhook.Config{Concurrency: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer sink.Close(ctx)
	delivery := sluice.AtLeastOnce(&sluicetest.Store{}, webhook.Messages, sink, nil)
	quiet := slog.New(slog.DiscardHandler)
	consumer, err := sluice.New(hub, &sluicetest.Leases{}, delivery, &sluice.Config{Partitions: 1, Logger: quiet})
	if err != nil {
		fmt.Println(err)
		return
	}
	go func() {
		for range 2 {
			<-received
		}
		consumer.Stop(ctx)
	}()
	if err := consumer.Run(ctx); err != nil {
		fmt.Println(err)
	}
	// Output:
	// event 0 delay 5
	// event 1 delay 7
}
