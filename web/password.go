package web

import (
	"fmt"
	"sync"

	"github.com/alexedwards/argon2id"
)

// hashCost is OWASP's smaller setting of argon2id: 19 MiB, so that several
// log-ins at once do not eat the machine.
var hashCost = &argon2id.Params{Memory: 19 << 10, Iterations: 2, Parallelism: 1, SaltLength: 16, KeyLength: 32}

// hashing bounds how many hashes are computed side by side.
var hashing = make(chan struct{}, 4)

func hashPassword(password string) (string, error) {
	hashing <- struct{}{}
	defer func() { <-hashing }()
	hash, err := argon2id.CreateHash(password, hashCost)
	if err != nil {
		return "", fmt.Errorf("hash password: %w", err)
	}
	return hash, nil
}

// nobody is a hash of no password: comparing with it takes as long as with a
// real one, so that an unknown account answers no sooner.
var nobody = sync.OnceValues(func() (string, error) { return hashPassword("nobody has this password") })

// matches compares in the same time whether or not the account exists; hash ""
// means that it does not.
func matches(password, hash string) (bool, error) {
	exists := hash != ""
	if !exists {
		var err error
		if hash, err = nobody(); err != nil {
			return false, err
		}
	}
	hashing <- struct{}{}
	defer func() { <-hashing }()
	ok, err := argon2id.ComparePasswordAndHash(password, hash)
	if err != nil {
		return false, fmt.Errorf("compare password: %w", err)
	}
	return ok && exists, nil
}
