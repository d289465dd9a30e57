package host

import (
	"context"
	"errors"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/nss"
)

const (
	// namesWithin is how long a cycle asks for the names of users at most, and nameWithin for one.
	namesWithin = 3 * time.Second
	nameWithin  = 2 * time.Second
	// namelessFor is how long the name of a user without one isn't asked for again: a
	// directory service that is down may look like one that doesn't know the user.
	namelessFor = time.Minute
)

// userNames are the names of users, as far as they are known. A directory service may
// be slow, so each name is asked for only once in a session.
type userNames struct {
	now      func() time.Time
	accounts nss.Passwd
	known    map[snapshot.UID]userName
}

// userName is the name of a user at a time; empty for none.
type userName struct {
	name snapshot.Username
	at   time.Time
}

// of is the name of a user, or unknown.
func (n *userNames) of(uid snapshot.UID) (name snapshot.Username, unknown bool) {
	user, known := n.known[uid]
	return user.name, !known
}

// ask asks for the names of the owners of processes. Those that can't be asked for stay unknown until the next call.
func (n *userNames) ask(ctx context.Context, s *snapshot.Snapshot) {
	ctx, cancel := context.WithTimeout(ctx, namesWithin)
	defer cancel()
	if n.known == nil {
		n.known = make(map[snapshot.UID]userName)
	}
	asked := make(map[snapshot.UID]bool)
	uids := make([]*snapshot.UID, 0, len(s.Processes))
	for i := range s.Processes {
		uids = append(uids, s.Processes[i].UID)
		if info := s.Processes[i].ContainerInfo; info != nil {
			uids = append(uids, info.UID)
		}
	}
	for _, uid := range uids {
		if uid == nil || asked[*uid] {
			continue
		}
		user, known := n.known[*uid]
		if known && (user.name != "" || n.now().Sub(user.at) < namelessFor) {
			continue
		}
		asked[*uid] = true
		delete(n.known, *uid)
		if ctx.Err() != nil {
			continue
		}
		if name, err := n.lookUp(ctx, *uid); err == nil {
			n.known[*uid] = userName{name, n.now()}
		}
	}
}

// lookUp is the name of a user, or "" for none. An error means that it is unknown.
func (n *userNames) lookUp(ctx context.Context, uid snapshot.UID) (snapshot.Username, error) {
	ctx, cancel := context.WithTimeout(ctx, nameWithin)
	defer cancel()
	account, err := n.accounts.WithUID(ctx, uid)
	if errors.Is(err, nss.ErrNoAccount) {
		err = nil
	}
	return account.Username(), err
}
