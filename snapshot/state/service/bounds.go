package service

import (
	"cmp"
	"fmt"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
)

// Bounds of what users may ask for. The zero value of a field is the default.
type Bounds struct {
	Connections int           // of all users at a time; 1024
	PerUser     int           // connections of one user at a time, and requests that wait; 16
	Rate        float64       // requests of one user a second, in the long run; 20
	Burst       int           // requests of one user at once; 100
	Send        time.Duration // for a request to come; 5 s
}

func (b Bounds) withDefaults() Bounds {
	return Bounds{
		Connections: cmp.Or(b.Connections, 1024), PerUser: cmp.Or(b.PerUser, 16),
		Rate: cmp.Or(b.Rate, 20), Burst: cmp.Or(b.Burst, 100), Send: cmp.Or(b.Send, 5*time.Second),
	}
}

func tooMany(uid snapshot.UID) error { return fmt.Errorf("%w from uid %d, try again", ErrBusy, uid) }

// admission counts the connections of users, and their requests in the last time.
type admission struct {
	bounds Bounds
	now    func() time.Time

	mu    sync.Mutex
	total int
	users map[snapshot.UID]*requestCredit
}

// requestCredit is what a user has asked for. credit are the requests that are left, at a time.
type requestCredit struct {
	connections int
	credit      float64
	at          time.Time
}

// admit says whether another connection of a user is served: then release ends it.
func (a *admission) admit(uid snapshot.UID) (release func(), ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	u := a.users[uid]
	if u == nil {
		a.forget(now)
		u = &requestCredit{credit: float64(a.bounds.Burst), at: now}
	}
	u.credit = min(u.credit+max(now.Sub(u.at), 0).Seconds()*a.bounds.Rate, float64(a.bounds.Burst))
	u.at = now
	if a.total >= a.bounds.Connections || u.connections >= a.bounds.PerUser || u.credit < 1 {
		return nil, false
	}
	if a.users == nil {
		a.users = map[snapshot.UID]*requestCredit{}
	}
	a.users[uid] = u
	u.credit--
	u.connections++
	a.total++
	return sync.OnceFunc(func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		u.connections--
		a.total--
	}), true
}

const maxIdle = 1024

// forget drops the users who have all their credit again, from time to time.
func (a *admission) forget(now time.Time) {
	if len(a.users) < maxIdle {
		return
	}
	full := time.Duration(float64(a.bounds.Burst) / a.bounds.Rate * float64(time.Second))
	for uid, u := range a.users {
		if u.connections == 0 && now.Sub(u.at) > full {
			delete(a.users, uid)
		}
	}
}

func (a *admission) connections() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.total
}
