package embedded

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// owner is who runs the server: PostgreSQL refuses to run as root. The zero
// value is the user of this process.
type owner struct {
	name     string
	uid, gid int
}

// serverOwner is this user, or for root the user postgres, else nobody.
func serverOwner() (owner, error) {
	if os.Geteuid() != 0 {
		return owner{}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.Atoi(u.Uid)
		gid, err2 := strconv.Atoi(u.Gid)
		if err := errors.Join(err1, err2); err != nil {
			return owner{}, fmt.Errorf("ids of user %s: %w", name, err)
		}
		return owner{name: name, uid: uid, gid: gid}, nil
	}
	return owner{}, errors.New("PostgreSQL does not run as root, and there is neither a user postgres nor nobody: start the demo as an ordinary user")
}

// attributes put a child into a session of its own, so that Ctrl-C reaches only
// us, and drop root.
func (o owner) attributes() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setsid: true}
	if o.name != "" {
		attr.Credential = &syscall.Credential{Uid: uint32(o.uid), Gid: uint32(o.gid)}
	}
	return attr
}

// take hands a file or folder over to the owner.
func (o owner) take(path string) error {
	if o.name == "" {
		return nil
	}
	if err := os.Chown(path, o.uid, o.gid); err != nil {
		return fmt.Errorf("hand %s over to user %s: %w", path, o.name, err)
	}
	return nil
}

// canEnter reports whether the owner reaches the folder.
func (o owner) canEnter(dir string) bool {
	if o.name == "" {
		return true
	}
	cmd := exec.Command("/bin/sh", "-c", "cd .")
	cmd.Dir = dir
	cmd.SysProcAttr = o.attributes()
	return cmd.Run() == nil
}

// prepareDir makes dir, owned by the user who runs the server.
func prepareDir(dir string, o owner) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return fmt.Errorf("folder %s cannot be made: %w", filepath.Dir(dir), err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("folder %s cannot be made: %w", dir, err)
	}
	if err := o.take(dir); err != nil {
		return err
	}
	if !o.canEnter(dir) {
		return fmt.Errorf("user %s, who has to run PostgreSQL for root, cannot enter %s: choose another folder with --data", o.name, dir)
	}
	return nil
}
