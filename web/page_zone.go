package web

import (
	"net/url"
	"time"

	"github.com/labstack/echo/v4"
)

// zoneOf is the time zone that the browser named in a cookie, else the server's.
func zoneOf(c echo.Context) *time.Location {
	cookie, err := c.Cookie("zone")
	if err != nil || cookie.Value == "" || len(cookie.Value) > 200 {
		return time.Local
	}
	name, err := url.QueryUnescape(cookie.Value)
	if err != nil || name == "Local" {
		return time.Local
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return time.Local
	}
	return zone
}
