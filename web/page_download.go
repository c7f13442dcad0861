package web

import (
	"fmt"
	"net/http"

	"github.com/labstack/echo/v4"

	"oncemore/dlq"
	"oncemore/internal/access"
	"oncemore/internal/audit"
)

// letterDownload sends the letter's value byte for byte, to those who may read
// it, and writes down that it did. Nothing in it is ever run: it is a file, and
// no browser may guess its type.
func (s *Server) letterDownload(c echo.Context) error {
	id, err := letterID(c)
	if err != nil {
		return dlq.ErrNotFound
	}
	actor := actorOf(c)
	if err := actor.Check(access.ReadPayload); err != nil {
		return err
	}
	body, err := s.Letters.Body(c.Request().Context(), id)
	if err != nil {
		return fmt.Errorf("get body of letter %s: %w", id, err)
	}
	if err := s.note(c, actor, audit.Entry{Action: "letter.downloaded", Target: "letter/" + id.String()}); err != nil {
		return err
	}
	c.Response().Header().Set(echo.HeaderContentDisposition, fmt.Sprintf(`attachment; filename="letter-%s.bin"`, id))
	return c.Blob(http.StatusOK, echo.MIMEOctetStream, body.Value)
}
