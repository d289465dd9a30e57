package report

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/remote/usage"
	"github.com/seed-3119e985/genv/remote/usage/store"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

const (
	// keyFile has the key of pseudonyms, in the folder of a controller. With the same key a user always has the
	// same pseudonym, and whoever has it can find out the user's name.
	keyFile = "pseudonyms.key"
	keySize = 32 // bytes
	// lockWithin is how long another process may take to make it.
	lockWithin = 10 * time.Second
)

// readNames is for how long names of users are kept; 0 for as long as the usage.
func readNames(c *cli.Context) (time.Duration, error) {
	if c.String("history-names") == "" {
		return 0, nil
	}
	namesFor, err := command.PositiveDuration(c, "history-names")
	if err == nil && namesFor < minKeep {
		return 0, command.UsageError("--history-names %s: write a day or more, such as 90d", c.String("history-names"))
	}
	return namesFor, err
}

// pseudonyms replace names of users after a time, if it isn't 0. dir is the folder in which a loop keeps its memory.
func pseudonyms(dir string, after time.Duration) (store.Pseudonyms, error) {
	if after == 0 {
		return store.Pseudonyms{}, nil
	}
	key, err := ensureKey(dir)
	if err != nil {
		return store.Pseudonyms{}, fmt.Errorf("the key of pseudonyms: %w", err)
	}
	return store.Pseudonyms{After: after, Of: func(user string) string { return usage.Pseudonym(key, user) }}, nil
}

// ensureKey reads the key in a folder, and makes it if there is none. It is safe on disk before it is used.
func ensureKey(dir string) ([]byte, error) {
	opened, err := folder.OpenExisting(dir)
	if err != nil {
		return nil, err
	}
	defer opened.Close()
	file, err := opened.Lock(keyFile, lockWithin) // another process may be making it
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err == nil && info.Size() == 0 {
		key := make([]byte, keySize)
		_, _ = rand.Read(key) // it never fails
		_, err = file.Write(key)
		err = errors.Join(err, file.Sync(), opened.Sync())
	}
	if err != nil {
		return nil, err
	}
	return readKey(opened)
}

// readKey reads a key, which must be private.
func readKey(f *folder.Folder) ([]byte, error) {
	key, status, err := f.Read(keyFile, 1<<20)
	switch path := f.Join(keyFile); {
	case err != nil:
		return nil, err
	case status.Mode&0o077 != 0:
		return nil, fmt.Errorf("other users can read it: chmod 600 %s", path)
	case len(key) != keySize:
		return nil, fmt.Errorf("%s has %d bytes, not %d: copy it again from where it was made, or remove it, and users get other pseudonyms", path, len(key), keySize)
	}
	return key, nil
}

// pseudonymOf is the pseudonym of a user with the key in a folder; empty if there is no key.
func pseudonymOf(user, dir string) (string, error) {
	opened, err := folder.OpenExisting(dir)
	if err != nil {
		return "", err
	}
	defer opened.Close()
	key, err := readKey(opened)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("the key of pseudonyms: %w", err)
	}
	return usage.Pseudonym(key, user), nil
}
