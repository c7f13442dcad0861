# The console as one static binary, run by nobody in particular.
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=dev
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=${VERSION}" -o /console ./cmd/console

FROM gcr.io/distroless/static-debian12:nonroot
COPY --from=build /console /console
USER nonroot:nonroot
EXPOSE 8080
ENTRYPOINT ["/console"]
CMD ["serve", "--config", "/etc/oncemore/console.yaml"]
