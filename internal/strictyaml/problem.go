package strictyaml

import (
	"errors"
	"fmt"
)

// Pos is where something stands in a file, for messages about it.
type Pos struct {
	File string
	Line int
	Key  string // path, such as consumers[0].connection
}

// Problem is one thing wrong in the file.
type Problem struct {
	Pos
	Text string
}

// Error is file:line: key: what is wrong.
func (p Problem) Error() string { return p.Pos.String() + ": " + p.Text }

// String is file:line: key.
func (p Pos) String() string {
	if p.Key == "" {
		return fmt.Sprintf("%s:%d", p.File, p.Line)
	}
	return fmt.Sprintf("%s:%d: %s", p.File, p.Line, p.Key)
}

// Problemf makes a problem at a place, for findings about a value's meaning.
func (p Pos) Problemf(format string, args ...any) error {
	return Problem{p, fmt.Sprintf(format, args...)}
}

// most is how many problems are worth reading at once.
const most = 20

// Problems collects what is wrong in the order of the file.
type Problems []error

// Add takes one more.
func (p *Problems) Add(err error) { *p = append(*p, err) }

// Err joins the problems, one a line.
func (p Problems) Err() error {
	if len(p) > most {
		more := fmt.Errorf("and %d more", len(p)-most)
		p = append(p[:most:most], more)
	}
	return errors.Join(p...)
}
