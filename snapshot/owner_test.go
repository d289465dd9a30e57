package snapshot_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
)

var (
	errTitle = errors.New("a title")
	errLost  = errors.New("the parents are not known")
)

// kin is a process or an ancestor; its start time is its PID.
type kin struct {
	pid    snapshot.PID
	uid    snapshot.UID
	claim  snapshot.EnvID
	hidden bool
}

func TestOwner(t *testing.T) {
	const alice, bob = 1001, 1002
	titled := func(pid snapshot.PID) kin { return kin{pid: pid, uid: alice, hidden: true} }
	plain := func(pid snapshot.PID) kin { return kin{pid: pid, uid: alice} }
	in := func(eid snapshot.EnvID, pid snapshot.PID) kin { return kin{pid: pid, uid: alice, claim: eid} }
	env := func(eid snapshot.EnvID, uid snapshot.UID, pids ...snapshot.PID) snapshot.Environment {
		return snapshot.Environment{EID: eid, UID: uid, PIDs: pids}
	}
	answer := func(eid snapshot.EnvID, pid snapshot.PID) snapshot.Answer {
		return snapshot.Answer{PID: pid, Start: snapshot.StartTime(pid), UID: alice, EID: eid}
	}
	type envs = []snapshot.Environment
	type answers = []snapshot.Answer
	type lineage = []kin
	for name, row := range map[string]struct {
		lineage   lineage
		envs      envs
		answers   answers
		container snapshot.EnvID
		lost      bool // of the lineage
		eid       snapshot.EnvID
		unknown   error
		carries   bool
	}{
		"a claim":                       {lineage: lineage{in("E", 9)}, eid: "E", carries: true},
		"registered in another":         {lineage: lineage{in("E", 9)}, envs: envs{env("F", alice, 9)}, eid: "F", carries: true},
		"registered by another":         {lineage: lineage{in("E", 9)}, envs: envs{env("F", bob, 9)}, eid: "E", carries: true},
		"another process with that PID": {lineage: lineage{titled(8)}, envs: envs{env("F", alice, 8)}, unknown: errTitle},
		"a title":                       {lineage: lineage{titled(9)}, unknown: errTitle},

		"a title, and a shell that is registered": {lineage: lineage{titled(9), plain(3)}, envs: envs{env("E", alice, 3)}, eid: "E", carries: true},
		"a title, and a shell that names it":      {lineage: lineage{titled(9), in("E", 3)}, eid: "E", carries: true},
		"a title under a title":                   {lineage: lineage{titled(9), titled(5), in("E", 3)}, eid: "E", carries: true},
		"the nearest one counts":                  {lineage: lineage{titled(9), in("E", 5), in("F", 3)}, eid: "E", carries: true},
		"a shell in another one by now":           {lineage: lineage{titled(9), in("E", 3)}, envs: envs{env("F", alice, 3)}, eid: "F", carries: true},
		"seen before it set its title":            {lineage: lineage{titled(9)}, answers: answers{answer("E", 9)}, eid: "E", carries: true},
		"seen before its shell changed":           {lineage: lineage{titled(9), plain(3)}, envs: envs{env("F", alice, 3)}, answers: answers{answer("E", 9)}, eid: "E", carries: true},
		"seen, and it names another":              {lineage: lineage{in("F", 9)}, answers: answers{answer("E", 9)}, eid: "F", carries: true},
		"seen, and it is registered":              {lineage: lineage{titled(9)}, envs: envs{env("F", alice, 9)}, answers: answers{answer("E", 9)}, eid: "F", carries: true},
		"seen, and it names none":                 {lineage: lineage{plain(9)}, answers: answers{answer("E", 9)}},
		"seen was another process":                {lineage: lineage{titled(9)}, answers: answers{{PID: 9, Start: 1, UID: alice, EID: "E"}}, unknown: errTitle},
		"seen was another user's":                 {lineage: lineage{titled(9)}, answers: answers{{PID: 9, Start: 9, UID: bob, EID: "E"}}, unknown: errTitle},
		"seen was its parent":                     {lineage: lineage{titled(9), titled(5)}, answers: answers{answer("E", 5)}, eid: "E", carries: true},
		"it left":                                 {lineage: lineage{in("E", 9)}, answers: answers{answer("", 9)}},
		"it left, and is back":                    {lineage: lineage{in("E", 9)}, envs: envs{env("E", alice, 9)}, answers: answers{answer("", 9)}, eid: "E", carries: true},
		"its shell left":                          {lineage: lineage{plain(9), in("E", 3)}, answers: answers{answer("", 3)}},
		"its shell left, and a title":             {lineage: lineage{titled(9), in("E", 3)}, answers: answers{answer("", 3)}, unknown: errTitle},
		"its shell left, and it didn't":           {lineage: lineage{in("E", 9), in("E", 3)}, answers: answers{answer("", 3)}, eid: "E", carries: true},
		"no claim, and a shell's":                 {lineage: lineage{plain(9), in("E", 3)}, eid: "E"},
		"no claim, and no ancestor with one":      {lineage: lineage{plain(9), titled(3)}},
		"no claim, and lost parents":              {lineage: lineage{plain(9)}, lost: true, unknown: errLost},
		"a claim, and lost parents":               {lineage: lineage{in("E", 9)}, lost: true, eid: "E", carries: true},
		"another user's shell":                    {lineage: lineage{titled(9), {pid: 3, uid: bob, claim: "E"}}, envs: envs{env("E", bob, 3)}, unknown: errTitle},
		"root's process, by sudo":                 {lineage: lineage{{pid: 9, hidden: true}, in("E", 3)}, eid: "E", carries: true},
		"registered for root":                     {lineage: lineage{{pid: 9, hidden: true}, {pid: 1}}, envs: envs{env("E", 0, 9, 1)}, unknown: errTitle},
		"a container":                             {lineage: lineage{titled(9), in("F", 3)}, container: "E", eid: "E", carries: true},
		"a container, and a claim":                {lineage: lineage{in("F", 9)}, container: "E", eid: "F", carries: true},
	} {
		t.Run(name, func(t *testing.T) {
			register := snapshot.NewRegister(row.envs, map[snapshot.PID]snapshot.StartTime{8: 1}, row.answers)
			got := register.Owner(func(yield func(snapshot.Relative, error) bool) {
				for _, k := range row.lineage {
					unread := map[bool]error{true: errTitle}[k.hidden]
					if !yield(snapshot.Relative{
						PID: k.pid, Start: snapshot.StartTime(k.pid),
						UID:   func() (snapshot.UID, error) { return k.uid, nil },
						Claim: func() (snapshot.EnvID, error) { return k.claim, unread },
					}, nil) {
						return
					}
				}
				if row.lost {
					yield(snapshot.Relative{}, errLost)
				}
			}, row.container)
			require.Equal(t, row.eid, got.EID)
			require.Equal(t, row.unknown, got.Unknown)
			require.Equal(t, row.carries, got.Carries(got.EID))
		})
	}
}

// A process is in an environment only if its account may be.
func TestEnvironmentOf(t *testing.T) {
	environments := snapshot.ByID([]snapshot.Environment{{EID: "E", UID: 1001}, {EID: "E", UID: 1002}, {EID: "?", UID: snapshot.NoUID}})
	uid := func(uid snapshot.UID) *snapshot.UID { return &uid }
	for name, row := range map[string]struct {
		process snapshot.Process
		in      bool
	}{
		"its user's":                  {snapshot.Process{EID: "E", UID: uid(1001)}, true},
		"root's":                      {snapshot.Process{EID: "E", UID: uid(0)}, true},
		"another user's":              {snapshot.Process{EID: "E", UID: uid(1002)}, false},
		"of a 1.4.3 host":             {snapshot.Process{EID: "E"}, true},
		"unknown":                     {snapshot.Process{EID: "E", EnvUnknown: true}, false},
		"not registered":              {snapshot.Process{EID: "F", UID: uid(1001)}, false},
		"in none":                     {snapshot.Process{UID: uid(1001)}, false},
		"an owner that can't be read": {snapshot.Process{EID: "?", UID: uid(1001)}, true},
		"a container of another user": {snapshot.Process{EID: "E", UID: uid(1001), ContainerInfo: &snapshot.ContainerInfo{UID: uid(1002)}}, false},
	} {
		require.Equal(t, row.in, snapshot.EnvironmentOf(&row.process, environments) != nil, name)
	}
}
