package guard

import (
	"maps"
	"os"
	"reflect"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"github.com/seed-3119e985/genv/snapshot"
)

// problems are what administrators have to know, by subject. Each change is logged.
type problems struct {
	log   zerolog.Logger
	now   map[string]string
	dirty bool // the status has changed
}

// set notes a problem; an empty text ends it.
func (p *problems) set(about, problem string) {
	if p.now[about] == problem {
		return
	}
	p.dirty = true
	if problem == "" {
		delete(p.now, about)
		return
	}
	p.now[about] = problem
	p.log.Warn().Str("about", about).Msg(problem)
}

// forget ends what was a problem of a guard that is on.
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

// publish writes guard.json if something in it has changed.
func (s *session) publish(now At) {
	if !s.problems.dirty && s.written.Mode == s.present.mode && s.written.Reason == s.present.reason && s.written.Given.Equal(s.given.Time) && !s.written.Time.IsZero() {
		return
	}
	next := s.status()
	next.Time = s.written.Time
	if reflect.DeepEqual(next, s.written) {
		s.problems.dirty = false
		return
	}
	next.Time = now.Time.UTC()
	if err := WriteStatus(s.RunDir, next); err != nil {
		s.problems.set("status", "guard.json can't be written: "+err.Error())
		return
	}
	s.written, s.problems.dirty = next, false
}

// status is what guard.json says.
func (s *session) status() Status {
	st := Status{
		Mode: s.present.mode, Reason: s.present.reason, Veto: s.veto, Keeper: snapshot.PID(os.Getpid()), KeeperStart: s.began,
		Devices: []Device{}, Users: []User{}, Problems: s.problems.list(),
	}
	if s.given.ID != "" {
		st.Order, st.Given, st.FirstUID = &s.given.Order, s.given.Time, s.given.First()
	}
	if s.present.mode == Off || s.loaded == nil {
		return st
	}
	st.Unpinned = s.loaded.unpinned
	st.Until = s.loaded.deadline.UTC().Truncate(time.Millisecond)
	st.Devices = append(st.Devices, s.loaded.plan.Devices...)
	st.Users = s.loaded.users()
	if k, err := s.loaded.State(); err == nil {
		st.Lost = k.Lost
	}
	return st
}

// users are those who may open devices, by index.
func (g *loaded) users() []User {
	users := make([]User, 0, len(g.plan.Allowed))
	for _, uid := range slices.Sorted(maps.Keys(g.plan.Allowed)) {
		u := User{UID: uid, Devices: []snapshot.DeviceIndex{}, Exempt: g.plan.Allowed[uid] == AllMinors()}
		for i := range g.plan.Devices {
			d := &g.plan.Devices[i]
			if d.Guarded && g.plan.Allowed[uid].Has(*d.Minor) {
				u.Devices = append(u.Devices, d.Index)
			}
		}
		slices.Sort(u.Devices)
		users = append(users, u)
	}
	return users
}
