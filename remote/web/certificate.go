package web

import (
	"crypto/tls"
	"fmt"
	"os"
	"sync"
	"time"
)

// Certificate is a certificate with its key in two files. It follows their renewal.
type Certificate struct {
	cert, key string
	now       func() time.Time

	mu      sync.Mutex
	looked  time.Time
	changed [2]time.Time // of the files
	current *tls.Certificate
}

// OpenCertificate reads the files.
func OpenCertificate(cert, key string, now func() time.Time) (*Certificate, error) {
	c := &Certificate{cert: cert, key: key, now: now}
	if err := c.read(); err != nil {
		return nil, err
	}
	return c, nil
}

// Config is the configuration of a server with the certificate. It doesn't offer HTTP/2, as the
// program may be built without that.
func (c *Certificate) Config() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, GetCertificate: c.get}
}

// get is the certificate of the moment: the last good one, while the files don't match.
func (c *Certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.now(); now.Sub(c.looked) >= time.Second || now.Before(c.looked) {
		c.looked = now
		if changed, err := c.times(); err == nil && changed != c.changed {
			_ = c.read()
		}
	}
	return c.current, nil
}

func (c *Certificate) times() (times [2]time.Time, err error) {
	for i, path := range []string{c.cert, c.key} {
		info, err := os.Stat(path)
		if err != nil {
			return times, err
		}
		times[i] = info.ModTime()
	}
	return times, nil
}

func (c *Certificate) read() error {
	changed, err := c.times()
	if err != nil {
		return err
	}
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		return fmt.Errorf("%s with %s: %w", c.cert, c.key, err)
	}
	c.changed, c.current = changed, &pair
	return nil
}
