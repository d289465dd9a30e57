package hardware

import (
	"encoding/json"
	"time"

	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

const (
	guardFile = "guard.json"
	maxGuard  = 1 << 20 // bytes
)

// IsGuarded says whether a guard is on at this time, according to guard.json in dir, which
// the guard's keeper writes: its mode is watch or enforce, and its time isn't over. Only a
// file that root alone can write counts. One of root's that can't be understood counts as
// a guard, since the UUIDs by which genv names devices then are right without one, too.
func IsGuarded(dir string, now time.Time) bool {
	data, err := folder.ReadTrusted(dir, guardFile, maxGuard)
	if err != nil {
		return false
	}
	var guard struct {
		Mode  string    `json:"mode"`
		Until time.Time `json:"until"`
	}
	if err := json.Unmarshal(data, &guard); err != nil {
		return true
	}
	if guard.Mode != "watch" && guard.Mode != "enforce" {
		return false
	}
	return guard.Until.IsZero() || now.Before(guard.Until)
}
