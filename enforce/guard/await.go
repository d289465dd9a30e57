package guard

import (
	"context"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
)

// awaitEvery is how often Await looks.
const awaitEvery = 5 * time.Millisecond

// Await waits until the kernel lets a user open devices that were attached, or until ctx ends. Where no guard is on,
// it doesn't wait.
func Await(ctx context.Context, runDir string, uid snapshot.UID, devices []snapshot.DeviceIndex) {
	for {
		s, err := ReadStatus(runDir)
		if err != nil || s.Now(time.Now()) == Off || s.lets(uid, devices) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(awaitEvery):
		}
	}
}

// lets says whether the user may open these devices, or will not be found among those who may.
func (s *Status) lets(uid snapshot.UID, devices []snapshot.DeviceIndex) bool {
	if uid == 0 || uid < s.FirstUID || s.UsersLeftOut > 0 {
		return true
	}
	var user User
	if i := slices.IndexFunc(s.Users, func(u User) bool { return u.UID == uid }); i >= 0 {
		user = s.Users[i]
	}
	return user.Exempt || !slices.ContainsFunc(s.Devices, func(d Device) bool {
		return d.Guarded && slices.Contains(devices, d.Index) && !slices.Contains(user.Devices, d.Index)
	})
}
