package oci

import (
	"fmt"

	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

const (
	fileName = "config.json"
	// maxBytes bounds a config.json. One of dockerd's has about 10 KiB, and some
	// hundred with --privileged.
	maxBytes = 16 << 20
)

// Read reads the config.json of a bundle. The error wraps folder.ErrUnsafe for a file that
// no container engine writes, such as a symbolic link or one of gigabytes, fs.ErrNotExist,
// or ErrGarbled.
func Read(bundle string) (*Config, error) {
	dir, err := folder.OpenExisting(bundle)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	data, _, err := dir.Read(fileName, maxBytes)
	if err != nil {
		return nil, err
	}
	c, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir.Join(fileName), err)
	}
	c.dir = bundle
	return c, nil
}

// Write replaces the config.json that was read by one with the changes. After an error the
// old one is there.
func (c *Config) Write() error {
	data, err := c.Encode()
	if err != nil {
		return err
	}
	dir, err := folder.OpenExisting(c.dir)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Put(fileName, data, 0o600, false)
}
