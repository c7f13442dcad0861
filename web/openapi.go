package web

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"

	"github.com/labstack/echo/v4"
	"go.yaml.in/yaml/v3"
)

//go:embed openapi.yaml
var openapiYAML []byte

// openapiJSON is the document as it is served: clients read JSON, people write YAML.
var openapiJSON = sync.OnceValues(func() ([]byte, error) {
	var document any
	if err := yaml.Unmarshal(openapiYAML, &document); err != nil {
		return nil, fmt.Errorf("read openapi.yaml: %w", err)
	}
	return json.Marshal(document)
})

func (s *Server) apiDocument(c echo.Context) error {
	document, err := openapiJSON()
	if err != nil {
		return err
	}
	return c.Blob(http.StatusOK, "application/json", document)
}
