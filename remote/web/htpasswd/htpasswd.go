// Package htpasswd checks passwords against a file of Apache's htpasswd.
//
//	file, err := htpasswd.Open("/etc/genv/web.htpasswd")
//	right, err := file.Check(ctx, "alice", password)
//
// Only bcrypt is accepted (`htpasswd -B`): what htpasswd writes by default can be tried
// too fast. A check of an unknown user takes as long as one of a known user.
package htpasswd

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/bcrypt"
)

// Bounds of a file, and of how much a server works for those who guess.
const (
	maxSize    = 1 << 20
	maxCost    = 14 // a second
	maxWaiting = 32 // for a check; one runs at a time
	maxRight   = 1024
	rightFor   = 10 * time.Minute
	lookEvery  = time.Second // at the file
)

// ErrBusy is returned when too many checks are waiting.
var ErrBusy = errors.New("too many passwords are being checked")

// File has the users of a file, and follows its changes.
type File struct {
	path    string
	now     func() time.Time
	waiting chan struct{}
	running chan struct{}
	key     []byte // of the cache, so that what is in memory can't be compared with anything

	mu     sync.Mutex
	looked time.Time
	state  os.FileInfo // of what was read
	hashes map[string][]byte
	dummy  []byte // for unknown users
	right  map[[sha256.Size]byte]time.Time
}

// Open reads a file.
func Open(path string, now func() time.Time) (*File, error) {
	f := &File{path: path, now: now, waiting: make(chan struct{}, maxWaiting), running: make(chan struct{}, 1), key: make([]byte, 32)}
	_, _ = rand.Read(f.key) // never fails
	if err := f.read(); err != nil {
		return nil, err
	}
	return f, nil
}

// Check reports whether a user has a password. What was right is remembered for some
// minutes, unless the file changes. The error says that nothing was checked.
func (f *File) Check(ctx context.Context, user, password string) (bool, error) {
	hash, id, known := f.lookUp(user, password)
	if known {
		return true, nil
	}
	select {
	case f.waiting <- struct{}{}:
		defer func() { <-f.waiting }()
	default:
		return false, ErrBusy
	}
	select {
	case f.running <- struct{}{}:
		defer func() { <-f.running }()
	case <-ctx.Done():
		return false, ctx.Err()
	}
	if _, _, known := f.lookUp(user, password); known { // a page asks for several things at once
		return true, nil
	}
	right := bcrypt.CompareHashAndPassword(hash, []byte(password)) == nil
	f.mu.Lock()
	defer f.mu.Unlock()
	right = right && bytes.Equal(f.hashes[user], hash) // nil for an unknown user
	if right {
		if len(f.right) >= maxRight {
			clear(f.right)
		}
		f.right[id] = f.now().Add(rightFor)
	}
	return right, nil
}

// lookUp is the hash to compare with, and whether this was found right before.
func (f *File) lookUp(user, password string) (hash []byte, id [sha256.Size]byte, known bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refresh()
	hash, exists := f.hashes[user]
	if !exists {
		hash = f.dummy
	}
	mac := hmac.New(sha256.New, f.key)
	fmt.Fprintf(mac, "%d %s %s ", len(user), user, hash)
	mac.Write([]byte(password))
	mac.Sum(id[:0])
	until, known := f.right[id]
	return hash, id, known && f.now().Before(until)
}

// refresh reads the file again if it changed. One that can't be read lets in only those who
// are in the last good one. The caller holds the lock.
func (f *File) refresh() {
	now := f.now()
	if now.Sub(f.looked) < lookEvery && !now.Before(f.looked) {
		return
	}
	f.looked = now
	info, err := os.Stat(f.path)
	if err == nil && f.state != nil && info.ModTime().Equal(f.state.ModTime()) && info.Size() == f.state.Size() && os.SameFile(info, f.state) {
		return
	}
	_ = f.read()
}

// read reads the file; an error changes nothing.
func (f *File) read() error {
	info, err := os.Stat(f.path)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Size() > maxSize {
		return fmt.Errorf("%s: not a file of at most 1 MB", f.path)
	}
	content, err := os.ReadFile(f.path)
	if err != nil {
		return err
	}
	hashes, err := parse(string(content))
	if err != nil {
		return fmt.Errorf("%s: %w", f.path, err)
	}
	cost := bcrypt.MinCost
	for _, hash := range hashes {
		c, _ := bcrypt.Cost(hash) // parse checked it
		cost = max(cost, c)
	}
	dummy, err := bcrypt.GenerateFromPassword(f.key, cost)
	if err != nil {
		return err
	}
	f.state, f.hashes, f.dummy, f.right = info, hashes, dummy, make(map[[sha256.Size]byte]time.Time)
	return nil
}

// parse reads lines like alice:$2y$10$….
func parse(content string) (map[string][]byte, error) {
	hashes := make(map[string][]byte)
	for i, line := range strings.Split(content, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		user, hash, _ := strings.Cut(line, ":")
		cost, err := bcrypt.Cost([]byte(hash))
		switch {
		case err != nil || user == "":
			return nil, fmt.Errorf("line %d: not a user with a bcrypt hash: write it with `htpasswd -B`", i+1)
		case len(hash) != 60:
			return nil, fmt.Errorf("line %d: the hash is not complete", i+1)
		case cost > maxCost:
			return nil, fmt.Errorf("line %d: a cost of %d is too slow: at most %d, with `htpasswd -B -C %d`", i+1, cost, maxCost, maxCost)
		case hashes[user] != nil:
			return nil, fmt.Errorf("line %d: the user is there twice", i+1)
		}
		hashes[user] = []byte(hash)
	}
	if len(hashes) == 0 {
		return nil, errors.New("it has no users: add one with `htpasswd -B`")
	}
	return hashes, nil
}
