package service_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/change"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
	"github.com/seed-3119e985/genv/snapshot/state/service"
)

var errSMI = errors.New("nvidia-smi failed")

// changerHost is a changer with a state folder of its own. Its nvidia-smi shows so many devices, or
// fails for none; asked counts its calls.
func changerHost(t *testing.T, devices *int) (c service.Changer, asked *int) {
	t.Helper()
	asked = new(int)
	dir := filepath.Join(t.TempDir(), "genv")
	return service.Changer{
		Store: disk.New(dir, disk.Config{}),
		ListDevices: func(context.Context) (list []snapshot.Device, err error) {
			*asked++
			for i := range *devices {
				list = append(list, snapshot.Device{Index: snapshot.DeviceIndex(i), TotalMemory: snapshot.MustMemory("80g")})
			}
			if list == nil {
				err = errSMI
			}
			return list, err
		},
	}, asked
}

var self = snapshot.PID(os.Getpid())

func me() change.Requester {
	uid := snapshot.UID(os.Getuid())
	return change.Requester{
		UID: uid, PID: self, Now: snapshot.DateOf(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)),
		Owner:    func(snapshot.PID) (snapshot.UID, error) { return uid, nil },
		Username: func(snapshot.UID) snapshot.Username { return "me" },
	}
}

func enter(gpus int) change.Change {
	return change.Change{Enter: &change.Enter{EID: "e", PID: self, Attach: true, Config: snapshot.EnvConfig{GPUs: &gpus}}}
}

func TestMissingDevicesAreLookedFor(t *testing.T) {
	devices := 1
	c, asked := changerHost(t, &devices)
	result := proctest.Try(c.Change(t.Context(), enter(1), me())).OK(t)
	require.Equal(t, []snapshot.DeviceIndex{0}, result.Now)
	require.Equal(t, 1, *asked, "no device was registered")

	require.ErrorIs(t, proctest.Try(c.Change(t.Context(), enter(2), me())).Err, state.ErrUnavailable)
	require.Equal(t, 2, *asked)

	devices = 2
	result = proctest.Try(c.Change(t.Context(), enter(2), me())).OK(t)
	require.Equal(t, []snapshot.DeviceIndex{0}, result.Before)
	require.Equal(t, []snapshot.DeviceIndex{0, 1}, result.Now)
	require.Equal(t, 3, *asked)

	proctest.Try(c.Change(t.Context(), change.Change{Detach: &change.Detach{EID: "e"}}, me())).OK(t)
	require.Equal(t, 3, *asked, "there is no need")
}

func TestWithoutNvidiaSMI(t *testing.T) {
	c, _ := changerHost(t, new(0))
	require.ErrorIs(t, proctest.Try(c.Change(t.Context(), enter(1), me())).Err, errSMI)
	files, err := c.Store.Read(t.Context())
	require.ErrorIs(t, err, state.ErrNoDevices)
	require.Empty(t, files.Environments, "nothing has changed")

	result := proctest.Try(c.Change(t.Context(), change.Change{Enter: &change.Enter{EID: "e", PID: self}}, me())).OK(t, "it needs no device")
	require.Equal(t, snapshot.EnvID("e"), result.EID)
}

func TestARefusedChangeChangesNothing(t *testing.T) {
	c, _ := changerHost(t, new(1))
	asker := me()
	asker.UID = 1 << 20
	require.ErrorIs(t, proctest.Try(c.Change(t.Context(), enter(1), asker)).Err, state.ErrNotOwner)
	files, _ := c.Store.Read(t.Context())
	require.Empty(t, files.Environments)
	require.ErrorIs(t, proctest.Try(c.Change(t.Context(), change.Change{}, me())).Err, state.ErrRequest)
}

func TestTheClientsErrors(t *testing.T) {
	h := newHost(t, 1)
	leave := change.Change{Leave: &change.Leave{Kernel: "k"}}
	_, err := h.client().Change(t.Context(), leave)
	require.ErrorIs(t, err, service.ErrNotRunning)
	require.ErrorContains(t, err, "systemctl start genv-host")

	listener := proctest.Try(net.Listen("unix", h.socket)).OK(t)
	defer listener.Close()
	answer := make(chan string, 1)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = bufio.NewReader(conn).ReadString('\n')
			fmt.Fprint(conn, <-answer)
			_ = conn.Close()
		}
	}()
	for _, lost := range []string{"", `{"version":1,`, "garbage\n", "{}\n"} {
		answer <- lost
		_, err = h.client().Change(t.Context(), leave)
		require.ErrorIs(t, err, service.ErrUnknown, lost)
		require.ErrorContains(t, err, "genv status")
	}
	late, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = h.client().Change(late, leave)
	require.ErrorIs(t, err, service.ErrUnknown)
	require.ErrorContains(t, err, "no answer in time")
	answer <- ""
	answer <- fmt.Sprintf(`{"error":%s}`+"\n", change.EncodeError(fmt.Errorf("%w: it is bob's", state.ErrNotOwner)))
	require.ErrorIs(t, proctest.Try(h.client().Change(t.Context(), leave)).Err, state.ErrNotOwner)
	busy := h.client()
	busy.Retry = time.Millisecond
	answer <- `{"busy":true,"error":{"text":"too many requests from uid 7, try again"}}` + "\n"
	go func() { answer <- `{"busy":true,"error":{"text":"too many requests from uid 7, try again"}}` + "\n" }()
	_, err = busy.Change(t.Context(), leave)
	require.ErrorIs(t, err, service.ErrBusy)
	require.ErrorContains(t, err, "too many requests from uid 7, try again")
}

// A socket of systemd's on which the service doesn't serve yet.
func TestAServiceThatDoesNotAnswer(t *testing.T) {
	h := newHost(t, 1)
	listener := proctest.Try(net.Listen("unix", h.socket)).OK(t)
	defer listener.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorContains(t, proctest.Try(h.client().Status(ctx)).Err, "systemctl status genv-host")
}
