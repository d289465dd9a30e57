package proc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/nss"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

// Accounts finds the account of a uid: its own, or the only one that has it as a subordinate uid (subuid(5)). A
// subordinate uid of several or unknown owners, of root or of dockremap, which give theirs to others, counts as its
// number. Directories of ranges can't be asked by uid: there, the account of a high uid without an account of its own
// is unknown. The zero value is for this machine. It is safe for concurrent use.
type Accounts struct {
	Etc string // the folder of subuid, nsswitch.conf and passwd; empty for /etc

	mu       sync.Mutex
	subuids  subuids
	answers  map[string]knownAccount // by name or uid
	wanted   map[string]bool         // keys of the next question
	asking   chan struct{}           // closed at the answer; nil without a question
	failed   error                   // why the last question had no answer
	failedAt time.Time
}

type knownAccount struct {
	uid   snapshot.UID
	found bool
	at    time.Time
}

const (
	answerFor = time.Minute      // how long an answer holds
	failedFor = 10 * time.Second // how long to ask nothing after a failure
	askWithin = 2 * time.Second  // for a question about askAtOnce keys
	askAtOnce = 100              // so few that one user's uids don't prolong a question
)

// UnknownAccount is the account of uids without a known account or range.
const UnknownAccount snapshot.UID = math.MaxUint32

// minSubordinate exceeds the uids of accounts and images; subordinate uids begin at 100000 (login.defs(5)).
const minSubordinate = 1 << 16

// ErrAccountUnknown says that the account of a uid is unknown, perhaps only yet.
var ErrAccountUnknown = errors.New("the account of a subordinate uid is unknown")

var errAsking = fmt.Errorf("%w yet", ErrAccountUnknown)

// Of returns the account of a uid without waiting for a directory: until that answers, the error wraps
// ErrAccountUnknown, and the result, for quotas, is the first uid of the range, or UnknownAccount.
func (a *Accounts) Of(uid snapshot.UID) (snapshot.UID, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.of(uid)
}

func (a *Accounts) of(uid snapshot.UID) (snapshot.UID, error) {
	a.subuids.etc = cmp.Or(a.Etc, "/etc")
	a.subuids.read(time.Now())
	owners, first := a.subuids.owners(uid)
	source := a.subuids.source
	if len(owners) == 0 && (source == "" || uid < minSubordinate) {
		return uid, nil
	}
	found, err := a.find(append(owners, fmt.Sprint(uid))...)
	if err == nil && source != "" && !found[0].found {
		err = fmt.Errorf("%w: its range is known to %s alone", ErrAccountUnknown, source)
	}
	if err != nil {
		return first, fmt.Errorf("uid %d: %w", uid, err)
	}
	for i, name := range owners {
		if !found[i].found || found[i].uid == 0 || found[i].uid != found[0].uid || name == "dockremap" {
			return uid, nil
		}
	}
	if found[len(owners)].found {
		return uid, nil
	}
	return found[0].uid, nil
}

// Wait is Of, but waits for the answer until ctx ends.
func (a *Accounts) Wait(ctx context.Context, uid snapshot.UID) (account snapshot.UID, err error) {
	err = a.wait(ctx, func() (err error) {
		account, err = a.of(uid)
		return err
	})
	return account, err
}

const resolveWithin = time.Second

// Resolve is Wait for people who act for themselves: an unknown account is the uid itself, as for the kernel.
func (a *Accounts) Resolve(ctx context.Context, uid snapshot.UID) snapshot.UID {
	ctx, cancel := context.WithTimeout(ctx, resolveWithin)
	defer cancel()
	account, err := a.Wait(ctx, uid)
	if err != nil {
		return uid
	}
	return account
}

// Lacks says whether a uid certainly has no account. It waits for the answer until ctx ends.
func (a *Accounts) Lacks(ctx context.Context, uid snapshot.UID) bool {
	lacks := false
	err := a.wait(ctx, func() error {
		account, err := a.of(uid)
		if err == nil && account == uid {
			var own []knownAccount
			if own, err = a.find(fmt.Sprint(uid)); err == nil {
				lacks = !own[0].found
			}
		}
		return err
	})
	return err == nil && lacks
}

func (a *Accounts) wait(ctx context.Context, try func() error) error {
	for {
		a.mu.Lock()
		err := try()
		asking := a.asking
		a.mu.Unlock()
		if !errors.Is(err, errAsking) {
			return err
		}
		select {
		case <-asking:
		case <-ctx.Done():
			return err
		}
	}
}

// find returns what is known of accounts, and asks for the rest in the background.
func (a *Accounts) find(keys ...string) (found []knownAccount, err error) {
	now := time.Now()
	for _, key := range keys {
		known, ok := a.answers[key]
		if !ok || now.Sub(known.at).Abs() > answerFor {
			if now.Sub(a.failedAt).Abs() < failedFor {
				return nil, a.failed
			}
			if a.wanted == nil {
				a.wanted = map[string]bool{}
			}
			a.wanted[key], err = true, errAsking
		}
		found = append(found, known)
	}
	if err != nil && a.asking == nil {
		a.ask()
	}
	return found, err
}

func (a *Accounts) ask() {
	a.asking = make(chan struct{})
	var keys []string
	for key := range a.wanted {
		if len(keys) == askAtOnce {
			break
		}
		delete(a.wanted, key)
		keys = append(keys, key)
	}
	directories := a.subuids.directories
	go func() {
		found, err := a.lookUp(keys, directories)
		a.mu.Lock()
		defer a.mu.Unlock()
		close(a.asking)
		a.asking = nil
		a.note(keys, found, err)
		if len(a.wanted) > 0 {
			a.ask()
		}
	}()
}

// note stores the answers, and forgets old ones. With an error, only those about found accounts are valid.
func (a *Accounts) note(keys []string, found map[string]snapshot.UID, err error) {
	now := time.Now()
	if err != nil {
		a.failed, a.failedAt = fmt.Errorf("%w: %w", ErrAccountUnknown, err), now
		clear(a.wanted)
	}
	maps.DeleteFunc(a.answers, func(_ string, old knownAccount) bool { return now.Sub(old.at).Abs() > answerFor })
	if a.answers == nil {
		a.answers = map[string]knownAccount{}
	}
	for _, key := range keys {
		if uid, ok := found[key]; ok || err == nil {
			a.answers[key] = knownAccount{uid, ok, now}
		}
	}
}

// lookUp asks for accounts by name or uid. With an error, accounts that it didn't find are unknown.
func (a *Accounts) lookUp(keys, directories []string) (map[string]snapshot.UID, error) {
	ctx, cancel := context.WithTimeout(context.Background(), askWithin)
	defer cancel()
	found := map[string]snapshot.UID{}
	passwd, _ := os.ReadFile(filepath.Join(cmp.Or(a.Etc, "/etc"), "passwd"))
	addAccounts(found, passwd)
	keys = slices.DeleteFunc(slices.Clone(keys), func(key string) bool { _, ok := found[key]; return ok })
	if len(keys) == 0 {
		return found, nil
	}
	out, err := nss.Getent(ctx, "passwd", keys...)
	addAccounts(found, out)
	switch {
	case errors.Is(err, exec.ErrNotFound): // /etc/passwd has all accounts
		err = nil
	case nss.NotFound(err):
		err = nss.Answering(ctx, "passwd", directories)
	}
	return found, err
}

func addAccounts(found map[string]snapshot.UID, passwd []byte) {
	for _, account := range nss.ParseAccounts(passwd) {
		found[account.Name], found[fmt.Sprint(account.UID)] = account.UID, account.UID
	}
}

type subuidRange struct {
	First, Last snapshot.UID
	Owner       string
}

type subuids struct {
	etc         string
	looked      time.Time // when the files were last checked for changes
	stamp       string    // of the files that were read
	ranges      []subuidRange
	source      string   // the service with the ranges; empty for the file
	directories []string // services of nsswitch.conf(5) that ask others for accounts
}

const maxSubuids = 4 << 20 // bounds the files, in bytes

// read checks at most once a second for changes. A file that others than root can write counts as empty.
func (s *subuids) read(now time.Time) {
	if now.Sub(s.looked).Abs() <= time.Second {
		return
	}
	s.looked = now
	stamp := folder.Stamp(filepath.Join(s.etc, "subuid"), filepath.Join(s.etc, "nsswitch.conf"))
	if stamp == s.stamp {
		return
	}
	nsswitch, _ := folder.ReadTrusted(s.etc, "nsswitch.conf", maxSubuids)
	s.stamp, s.ranges, s.source = stamp, nil, ""
	s.directories = nss.Directories(string(nsswitch), "passwd")
	if sources := nss.Services(string(nsswitch), "subid"); len(sources) > 0 && sources[0] != "files" {
		s.source = sources[0]
	} else {
		text, _ := folder.ReadTrusted(s.etc, "subuid", maxSubuids)
		s.ranges = parseSubuids(string(text))
	}
}

// owners returns the owners of a subordinate uid, and the begin of the first one's range, or UnknownAccount.
func (s *subuids) owners(uid snapshot.UID) (owners []string, first snapshot.UID) {
	first = UnknownAccount
	for _, r := range s.ranges {
		if uid == 0 || uid < r.First || uid > r.Last || slices.Contains(owners, r.Owner) {
			continue
		}
		if owners = append(owners, r.Owner); len(owners) == 1 {
			first = r.First
		}
	}
	return owners, first
}

func parseSubuids(text string) (ranges []subuidRange) {
	for line := range strings.Lines(text) {
		fields := strings.Split(strings.TrimSpace(line), ":")
		if len(fields) != 3 || fields[0] == "" {
			continue
		}
		first, err := strconv.ParseUint(fields[1], 10, 32)
		count, countErr := strconv.ParseUint(fields[2], 10, 32)
		if err == nil && countErr == nil && count > 0 {
			last := min(first+count-1, math.MaxUint32)
			ranges = append(ranges, subuidRange{snapshot.UID(first), snapshot.UID(last), fields[0]})
		}
	}
	return ranges
}
