package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
)

// flushTimeout is what the last spans get on the way out.
const flushTimeout = 3 * time.Second

// startTraces exports spans by OTLP if the environment says where to, in the
// variables that OpenTelemetry specifies: OTEL_EXPORTER_OTLP_ENDPOINT and those
// beside it, OTEL_TRACES_SAMPLER, OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES. The
// function returned sends what is left. Without an endpoint nothing is recorded.
func startTraces(ctx context.Context, log *slog.Logger) (func(), error) {
	if !tracesWanted(os.Getenv) {
		return func() {}, nil
	}
	if p := protocolOf(os.Getenv); p != "" && p != "http/protobuf" {
		return nil, fmt.Errorf("traces: OTEL_EXPORTER_OTLP_PROTOCOL %q is not spoken here: use http/protobuf, which collectors take on port 4318", p)
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	what, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", "oncemore"), attribute.String("service.version", versionText())),
		resource.WithHost(), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("traces: OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	provider := trace.NewTracerProvider(trace.WithBatcher(exporter), trace.WithResource(what))
	otel.SetTracerProvider(provider)
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("traces not exported", "error", err) }))
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil {
			log.Warn("the last traces were not exported", "error", err)
		}
	}, nil
}

func tracesWanted(env func(string) string) bool {
	switch {
	case strings.EqualFold(env("OTEL_SDK_DISABLED"), "true"), env("OTEL_TRACES_EXPORTER") == "none":
		return false
	}
	return env("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != "" || env("OTEL_TRACES_EXPORTER") == "otlp"
}

func protocolOf(env func(string) string) string {
	if p := env("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"); p != "" {
		return p
	}
	return env("OTEL_EXPORTER_OTLP_PROTOCOL")
}
