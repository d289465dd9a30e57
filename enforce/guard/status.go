package guard

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

type problems struct {
	log zerolog.Logger
	now map[string]string
}

func (p *problems) set(about, problem string) {
	if p.now[about] == problem {
		return
	}
	if problem == "" {
		delete(p.now, about)
		return
	}
	p.now[about] = problem
	p.log.Warn().Str("about", about).Msg(problem)
}

func (p *problems) forget() {
	for _, about := range []string{"kernel", "pins", "state", "devices", "users"} {
		p.set(about, "")
	}
}

func (p *problems) list() []string {
	var list []string
	for _, about := range slices.Sorted(maps.Keys(p.now)) {
		list = append(list, about+": "+p.now[about])
	}
	return list
}

func (s *lockedKeeper) publish(now At) {
	next := s.status()
	next.Time, next.Lost = s.written.Time, s.written.Lost
	if reflect.DeepEqual(next, s.written) && !next.Time.IsZero() {
		return
	}
	next.Time = now.Time.UTC()
	if s.loaded != nil && next.Mode != Off {
		if k, err := s.loaded.State(); err == nil {
			next.Lost = k.Lost
		}
	}
	if err := WriteStatus(s.RunDir, next); err != nil {
		s.problems.set("status", "guard.json can't be written: "+err.Error())
		return
	}
	s.written = next
}

func (s *lockedKeeper) status() Status {
	st := Status{
		Mode: s.mode, Reason: s.reason, Veto: s.veto, Keeper: snapshot.PID(os.Getpid()),
		KeeperStart: s.began,
		Devices:     []Device{}, Users: []AllowedUser{}, Problems: s.problems.list(),
	}
	if s.order.ID != "" {
		st.Order, st.Given, st.FirstUID = &s.order, s.order.Given, s.order.First()
	}
	if s.mode == Off || s.loaded == nil {
		return st
	}
	st.Unpinned = s.loaded.unpinned
	st.Until = s.loaded.deadline.UTC().Truncate(time.Millisecond)
	st.Devices = append(st.Devices, s.loaded.plan.Devices...)
	st.Users = s.loaded.users()
	return st
}

func (g *loaded) users() []AllowedUser {
	users := make([]AllowedUser, 0, len(g.plan.Allowed))
	for _, uid := range slices.Sorted(maps.Keys(g.plan.Allowed)) {
		u := AllowedUser{UID: uid, Devices: []snapshot.DeviceIndex{}, Exempt: g.plan.Allowed[uid] == AllMinors()}
		for i := range g.plan.Devices {
			if d := &g.plan.Devices[i]; d.Guarded && g.plan.Allowed[uid].Has(*d.Minor) {
				u.Devices = append(u.Devices, d.Index)
			}
		}
		slices.Sort(u.Devices)
		users = append(users, u)
	}
	return users
}

// Status is what a host's guard does, in guard.json for all users.
type Status struct {
	Schema string    `json:"schema"`
	Mode   Mode      `json:"mode"` // that of the kernel until Until, if the file isn't written again
	Until  time.Time `json:"until,omitzero"`
	Time   time.Time `json:"time"`             // of writing
	Reason string    `json:"reason,omitempty"` // why the mode is not the ordered one, or why it is off
	Order  *Order    `json:"order,omitempty"`  // the last order, also if its time is over
	Given  time.Time `json:"given,omitzero"`   // when it was last given
	Veto   bool      `json:"veto,omitempty"`

	Keeper snapshot.PID `json:"keeper,omitempty"`
	// KeeperStart distinguishes the Keeper from a later process with its PID; 0 if unknown.
	KeeperStart snapshot.StartTime `json:"keeper_start,omitempty"`
	Unpinned    bool               `json:"unpinned,omitempty"` // the guard is in its Keeper's process, and ends with it
	FirstUID    snapshot.UID       `json:"first_uid,omitempty"`
	Devices     []Device           `json:"devices"`
	// Users are sorted by uid. UsersLeftOut is how many more may open devices.
	Users        []AllowedUser `json:"users"`
	UsersLeftOut int           `json:"users_left_out,omitempty"`
	Problems     []string      `json:"problems,omitempty"`
	// Lost counts opens that were too many at once to be reported.
	Lost uint64 `json:"lost,omitempty"`
}

// Device is a device of the host as the guard sees it.
type Device struct {
	Index   snapshot.DeviceIndex `json:"index"`
	UUID    snapshot.GPUUUID     `json:"uuid,omitempty"`
	Minor   *int                 `json:"minor,omitempty"` // of the node /dev/nvidiaN
	Guarded bool                 `json:"guarded"`
	Why     string               `json:"why,omitempty"` // why it isn't
}

// AllowedUser may open guarded devices. guard.json has no names.
type AllowedUser struct {
	UID     snapshot.UID           `json:"uid"`
	Devices []snapshot.DeviceIndex `json:"devices"`
	Exempt  bool                   `json:"exempt,omitempty"` // may open all
	Name    snapshot.Username      `json:"name,omitempty"`
}

const (
	statusFile   = "guard.json"
	statusSchema = "genv.guard/1"
	maxStatus    = 1 << 20 // bytes
	MaxUsers     = 500     // that are listed
)

var statusNote = folder.Note[Status]{
	Name: statusFile, Max: maxStatus, Mode: 0o644, Invalid: snapshot.ErrInvalid,
	Check: func(s *Status) error {
		return cmp.Or(folder.CheckSchema(s.Schema, statusSchema), cmp.Or(s.Order, &Order{}).Check())
	},
}

// ErrNoStatus means that no guard was on since the machine started.
var ErrNoStatus = errors.New("no guard was on since the machine was started")

// WriteStatus replaces guard.json.
func WriteStatus(dir string, s Status) error {
	s.Schema = statusSchema
	if len(s.Users) > MaxUsers {
		s.Users, s.UsersLeftOut = s.Users[:MaxUsers], len(s.Users)-MaxUsers
	}
	if data, err := json.Marshal(s); err == nil && len(data) >= maxStatus { // a thousand long names are exempt
		s.Order, s.UsersLeftOut, s.Users = nil, s.UsersLeftOut+len(s.Users), []AllowedUser{}
	}
	return statusNote.Publish(dir, s)
}

// ReadStatus reads guard.json. Errors wrap ErrNoStatus, folder.ErrUnsafe or snapshot.ErrInvalid.
func ReadStatus(dir string) (Status, error) {
	s, err := statusNote.Read(dir)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: there is no %s", ErrNoStatus, filepath.Join(dir, statusFile))
	}
	return s, err
}

// Now is the kernel's mode at a time.
func (s *Status) Now(at time.Time) Mode {
	if !at.Before(s.Until) {
		return Off
	}
	return s.Mode
}

const awaitEvery = 5 * time.Millisecond

// Await waits until the kernel lets a user open attached devices, if a guard is on, or until ctx ends.
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

// lets reports whether the user may open these devices, or is perhaps not listed.
func (s *Status) lets(uid snapshot.UID, devices []snapshot.DeviceIndex) bool {
	if uid == 0 || uid < s.FirstUID || s.UsersLeftOut > 0 {
		return true
	}
	user := cmp.Or(snapshot.Find(s.Users, func(u *AllowedUser) bool { return u.UID == uid }), &AllowedUser{})
	return user.Exempt || !slices.ContainsFunc(s.Devices, func(d Device) bool {
		return d.Guarded && slices.Contains(devices, d.Index) && !slices.Contains(user.Devices, d.Index)
	})
}
