package effect_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"time"

	"oncemore/consumer"
	"oncemore/consumer/consumertest"
	"oncemore/consumer/effect"
)

// A call of another service, once for each event: deliveries that come again are
// recognised by the record, and a commit that is lost repeats the call with the same
// key, by which the service has to recognise it.
func ExampleOn() {
	service := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Println(r.Method, r.URL.Path, r.Header.Get("Idempotency-Key"), string(body))
	}))
	defer service.Close()
	sms, err := effect.NewHTTP(effect.HTTPConfig{
		Name: "sms", Base: service.URL, Path: "/sms", Key: effect.KeyEffect,
		Body: map[string]any{"order": ":orderId"},
	}, effect.HTTPOptions{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		log.Fatal(err)
	}

	ctx, stop := context.WithTimeout(context.Background(), 10*time.Second)
	defer stop()
	broker := consumertest.NewBroker(1)
	for range 2 {
		broker.Publish(consumertest.JSON("order.paid", `{"eventId":"payment-success-10001","orderId":"10001"}`))
	}
	does := effect.On[int](sms)
	member, err := consumertest.NewConsumer(broker, consumer.Config[int]{
		Group: "notification", Store: consumertest.NewMemory(0), EventID: consumer.EventIDSource{JSON: "$.eventId"},
		Handler: does.Handler(), BatchSize: does.BatchSize(), // one: a call cannot be rolled back with its neighbours
	}, "order.paid")
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		if err := broker.Wait(ctx); err != nil {
			fmt.Println(err)
		}
		stop()
	}()
	if err := member.Run(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: POST /sms payment-success-10001:notification:sms {"order":"10001"}
}

// Lock keys by fields of the payload, for consumers whose batches share rows.
func ExampleNewKeys() {
	keys, err := effect.NewKeys(map[string][]string{"account": {":from", ":to"}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(keys(consumer.Event{ID: "transfer-1", Value: []byte(`{"from":7,"to":9}`)}))
	// Output: [account/7 account/9] <nil>
}

// A statement with fields of the payload, as in the config file.
func ExampleNewSQL() {
	_, err := effect.NewSQL(`update user_points set points = points + :points where user_id = :userId; drop table user_points`, nil)
	fmt.Println(err)
	// Output: statement, byte 74: one statement only, but something follows the semicolon
}
