package controller

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/quota"
)

// HourlyQuota bounds how many messages, or bytes of the record, users of a host cause in an hour, each and together.
type HourlyQuota[A comparable] struct {
	Users map[snapshot.Hostname]map[A]Spent `json:"users,omitempty"`
}

// Spent is what a user of a host used within an hour.
type Spent struct {
	Since      time.Time `json:"since"`
	Sent       int       `json:"sent"`
	Suppressed int       `json:"suppressed,omitempty"` // how often the quota was used up
	said       bool      // Over returned it
}

const (
	quotaHour = time.Hour
	// maxAccounts bounds the users of a host, which may make them up. Further ones are suppressed, and counted for the
	// zero user.
	maxAccounts = 1024
)

// Spend spends n for a user if the bounds allow it: ofUser for the user, ofHost for all users of the host; 0 is no
// bound. With ofHost, a user may have spent at most an eighth of what the host has left: of 800, if 160 are spent, 80.
// after is what the user has spent in this hour. before is set at the first call in an hour, to that of the last hour.
func (b *HourlyQuota[A]) Spend(
	host snapshot.Hostname, user A, n, ofUser, ofHost int, now time.Time,
) (before, after Spent, ok bool) {
	users := b.Users[host]
	_, known := users[user]
	full := !known && len(users) >= maxAccounts
	if full {
		user = *new(A)
	}
	if b.Users == nil {
		b.Users = make(map[snapshot.Hostname]map[A]Spent)
	}
	if users == nil {
		users = make(map[A]Spent)
		b.Users[host] = users
	}
	after = users[user]
	if after.ended(now) {
		before, after = after, Spent{Since: now}
	}
	all := 0
	for _, w := range users {
		if !w.ended(now) {
			all += w.Sent
		}
	}
	ok = !full && (ofUser == 0 || after.Sent+n <= ofUser) &&
		(ofHost == 0 || quota.Leaves(after.Sent+n, all, ofHost))
	if ok {
		after.Sent += n
	} else {
		after.Suppressed++
	}
	users[user] = after
	return before, after, ok
}

func (w *Spent) ended(now time.Time) bool {
	age := now.Sub(w.Since)
	return age >= quotaHour || age < 0
}

// Refund gives back n to a user.
func (b *HourlyQuota[A]) Refund(host snapshot.Hostname, user A, n int) {
	if w, known := b.Users[host][user]; known {
		w.Sent = max(0, w.Sent-n)
		b.Users[host][user] = w
	}
}

// Forget drops hours that have ended. Those with something suppressed are kept for another hour, for Spend to return.
func (b *HourlyQuota[A]) Forget(now time.Time) {
	for host, users := range b.Users {
		maps.DeleteFunc(users, func(_ A, w Spent) bool {
			age := now.Sub(w.Since)
			return age >= 2*quotaHour || age >= quotaHour && w.Suppressed == 0
		})
		if len(users) == 0 {
			delete(b.Users, host)
		}
	}
}

// Over is how much was suppressed for a user.
type Over[A comparable] struct {
	Host  snapshot.Hostname
	User  A
	Count int
	Ended bool // the hour is over; else more may follow
}

// Over returns what was suppressed for each user: once when that begins in an hour, and the rest after the hour. It
// drops hours that have ended, as Spend does: call Over first.
func (b *HourlyQuota[A]) Over(now time.Time) []Over[A] {
	var list []Over[A]
	for host, users := range b.Users {
		for user, w := range users {
			ended := w.ended(now)
			if w.Suppressed > 0 && (ended || !w.said) {
				list = append(list, Over[A]{host, user, w.Suppressed, ended})
				w.Suppressed, w.said = 0, true
				users[user] = w
			}
			if ended {
				delete(users, user)
			}
		}
		if len(users) == 0 {
			delete(b.Users, host)
		}
	}
	slices.SortFunc(list, func(a, b Over[A]) int {
		return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(fmt.Sprint(a.User), fmt.Sprint(b.User)))
	})
	return list
}
