.PHONY: test soak interop lint generate bench bench-letters bench-reconcile bench-saga demo build

test:     ## everything against real servers, as CI does
	scripts/test unit

soak:     ## the tests that take minutes, on servers of their own
	scripts/test soak

interop:  ## dead letters and consume records of a Spring application, built by Maven
	scripts/test interop

lint:
	gofmt -l . && go vet ./... && go tool staticcheck ./...

generate: ## pages from their templates
	go tool templ generate -path views

bench:    ## figures, against what database, broker and Spring do in the same run
	scripts/test bench

bench-letters: ## pages and drain with ten million dead letters; needs 30 GB of disk
	scripts/test bench-letters

bench-reconcile: ## figures of reconciliation, beside reladiff on the same data
	scripts/test bench-reconcile

bench-saga: ## figures of compensation, beside a loop that makes the same calls and writes the same rows
	scripts/test bench-saga

demo:
	go run ./cmd/console demo

build:
	CGO_ENABLED=0 go build -trimpath -o bin/console ./cmd/console
