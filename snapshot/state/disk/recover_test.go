package disk_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
	"github.com/seed-3119e985/genv/snapshot/state/system"
)

// Who removes envs.json right before a genv 1.4.3 is used leaves a valid, empty
// file: what still runs is registered again, as is what 1.4.3 dropped with its shell.
func TestRunningProcessesAreRegisteredAgain(t *testing.T) {
	tests := []struct {
		name     string
		running  []system.RunningProcess
		taken    bool // its device, meanwhile
		want     []snapshot.PID
		attached indices
	}{
		{name: "a job still runs", running: []system.RunningProcess{job(50, alice, "1102")}, want: []snapshot.PID{50}, attached: indices{0}},
		{name: "its device has another user", running: []system.RunningProcess{job(50, alice, "1102")}, taken: true, want: []snapshot.PID{50}},
		{name: "nothing runs"},
		{name: "the shell itself has left", running: []system.RunningProcess{with(job(1102, alice, "1102"), func(r *system.RunningProcess) { r.Name = "bash" })}},
		{name: "a job that was registered itself still runs", running: []system.RunningProcess{job(1102, alice, "1102")}, want: []snapshot.PID{1102}, attached: indices{0}},
		{name: "another user's process", running: []system.RunningProcess{job(50, bob, "1102")}},
		{name: "an ssh-agent is no work", running: []system.RunningProcess{with(job(50, alice, "1102"), func(r *system.RunningProcess) { r.Name = "ssh-agent" })}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			store, machine, dir, _ := kept(t)
			machine.running = tt.running
			legacy := &fakeSystem{}
			require.NoError(t, disk.New(dir, disk.Config{System: legacy}).Update(t.Context(), func(b *state.Files) error {
				b.Environments = nil
				b.Detach("1102")
				if !tt.taken {
					return nil
				}
				if err := b.Activate(state.Activation{EID: "9", UID: bob, PID: 9, At: at("12:00:00")}); err != nil {
					return err
				}
				_, err := b.Attach(state.AttachRequest{EID: "9", Count: 1, At: at("12:00:00")})
				return err
			}))
			for range 2 {
				files, err := store.Read(t.Context())
				require.NoError(t, err)
				env := files.Environment("1102")
				require.Equal(t, tt.want != nil, env != nil)
				if env != nil {
					require.Equal(t, tt.want, env.PIDs)
					require.Equal(t, alice, env.UID)
				}
				require.Equal(t, tt.attached, files.AttachedTo("1102"))
			}
		})
	}
}

// An environment that vanished proves that others may have, which began after the
// copy; a file that lacks none proves nothing.
func TestNewerEnvironmentsAreRecoveredToo(t *testing.T) {
	for _, goesOn := range []bool{true, false} {
		store, machine, dir, _ := kept(t)
		machine.running = []system.RunningProcess{job(6000, bob, "2020")}
		if goesOn {
			machine.running = append(machine.running, job(50, alice, "1102"))
		}
		put(t, dir, "envs.json", `{"envs": []}`)
		files, err := store.Read(t.Context())
		require.NoError(t, err)
		require.Equal(t, goesOn, files.Environment("1102") != nil)
		require.Equal(t, goesOn, files.Environment("2020") != nil)
		require.Equal(t, goesOn, files.InRestorationGrace(6000, time.Now()))
	}
}

// Any number of environments of any number of users may be lost.
func TestProcessesOfManyUsersAreReadOnce(t *testing.T) {
	store, machine, dir, _ := kept(t)
	const count = 3000
	require.NoError(t, store.Update(t.Context(), func(b *state.Files) error {
		for i := range snapshot.PID(count) {
			b.Environments = append(b.Environments, snapshot.Environment{
				EID: snapshot.EnvID(strconv.Itoa(int(10_000 + i))), UID: snapshot.UID(100_000 + i), Creation: at("12:00:00"), PIDs: []snapshot.PID{10_000 + i},
			})
		}
		return nil
	}))
	for i := range snapshot.PID(count) {
		machine.running = append(machine.running, job(10_000+i, snapshot.UID(100_000+i), snapshot.EnvID(strconv.Itoa(int(10_000+i)))))
	}
	machine.walks = 0
	put(t, dir, "envs.json", `{"envs": []}`)
	files, err := store.Read(t.Context())
	require.NoError(t, err)
	require.Len(t, files.Environments, count)
	require.Equal(t, 2, machine.walks, "for all that are lost, and for what began since")
}

// Who writes another uid into another user's environment leaves it without a process of
// its user: so it ends, and is the right user's again.
func TestAnEnvironmentOfAnotherUserNowIsRegisteredAgain(t *testing.T) {
	store, machine, dir, _ := kept(t)
	owner := alice
	machine.processes = map[snapshot.PID]system.ProcessStatus{1102: {Liveness: system.Alive, Owner: &owner}}
	machine.running = []system.RunningProcess{job(50, alice, "1102")}
	require.NoError(t, disk.New(dir, disk.Config{System: &fakeSystem{}}).Update(t.Context(), func(b *state.Files) error {
		b.Environment("1102").UID = bob
		return nil
	}))
	files, err := store.Read(t.Context())
	require.NoError(t, err)
	require.Equal(t, alice, files.Environment("1102").UID)
	require.Equal(t, indices{0}, files.AttachedTo("1102"))
}
