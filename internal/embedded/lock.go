package embedded

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// ErrLocked means that another process uses the folder.
var ErrLocked = errors.New("in use by another demo")

// Lock is held on a folder until Unlock, or until the process ends.
type Lock struct{ file *os.File }

// LockFolder makes dir where it is missing and takes its lock. Errors: ErrLocked,
// or a sentence saying that the folder cannot be written.
func LockFolder(dir string) (*Lock, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("folder %s cannot be made: %w", dir, err)
	}
	file, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("folder %s cannot be written: %w", dir, err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		file.Close()
		return nil, fmt.Errorf("folder %s is %w", dir, ErrLocked)
	}
	return &Lock{file}, nil
}

// Unlock lets go of the folder.
func (l *Lock) Unlock() error { return l.file.Close() }
