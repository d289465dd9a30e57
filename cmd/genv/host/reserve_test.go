package host_test

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/testfleet/gpus"
	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
	"github.com/seed-3119e985/genv/snapshot"
)

// Whatever moment the service is killed at, what was answered is there, once; and what is reserved is kept for its owner.
func TestReserveOverKilledServices(t *testing.T) {
	h := newOwnHost(t)
	require.NoError(t, os.Mkdir(filepath.Join(h.dir, "bin"), 0o755))
	require.NoError(t, os.Symlink(sshd.Build(t, "remote/testfleet/gpus/nvidia-smi"), filepath.Join(h.dir, "bin/nvidia-smi")))
	require.NoError(t, gpus.Driver{Devices: gpus.H100s("own", 2)}.Write(filepath.Join(h.dir, "gpus.json")))
	const alice, bob = 4001, 4002
	text, ok := h.does(alice, "reserve", "--gpus", "1", "--for", "8h")
	require.False(t, ok)
	require.Contains(t, text, "reservations are kept by root's service")
	service := h.serve()
	text, ok = h.does(alice, "reserve", "--gpus", "1", "--for", "8h")
	require.False(t, ok)
	require.Contains(t, text, "only root may reserve GPUs while no policy is enforced here")
	made := map[string]bool{}
	for i := range 6 {
		done := make(chan string)
		go func() {
			text, _ := h.does(0, "reserve", "--user", "4001", "--gpus", "1", "--from", "tomorrow 12:0"+string(rune('0'+i)), "--for", "1m")
			done <- text
		}()
		time.Sleep(rand.N(200 * time.Millisecond))
		require.NoError(t, service.Process.Kill())
		_ = service.Wait()
		service = h.serve()
		if id := regexp.MustCompile(`as ([0-9a-f]{8})\n`).FindStringSubmatch(<-done); id != nil {
			made[id[1]] = true
		}
	}
	text, ok = h.does(bob, "reserve", "--list", "--format", "json")
	require.True(t, ok, text)
	var listed struct{ Reservations []snapshot.Reservation }
	require.NoError(t, json.Unmarshal([]byte(text), &listed))
	froms := map[time.Time]int{}
	for _, r := range listed.Reservations {
		delete(made, r.ID)
		froms[r.From]++
		require.Equal(t, 1, froms[r.From])
	}
	require.Empty(t, made)
	text, ok = h.does(0, "reserve", "--user", "4001", "--gpus", "2", "--for", "2h", "--reason", "a deadline")
	require.True(t, ok, text)
	require.Regexp(t, `^Reserved: 2 GPUs for uid 4001 from \w{3} 20\d\d-\d\d-\d\d \d\d:\d\d \S+ to \w{3} .* \(2h\), as [0-9a-f]{8}\n$`, text)
	text, ok = h.does(bob, "run", "--gpus", "1", "true")
	require.False(t, ok)
	require.Contains(t, text, "2 GPUs of this host are reserved by uid 4001, until")
	text, ok = h.does(alice, "run", "--gpus", "2", "true")
	require.True(t, ok, text)
	text, _ = h.does(bob, "reserve", "--list")
	require.Contains(t, text, "a deadline")
	files, err := filepath.Glob(filepath.Join(h.dir, "root/*/reservations.json"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	require.NoError(t, os.WriteFile(files[0], []byte("{"), 0o644))
	text, _ = h.does(bob, "gpus")
	require.Contains(t, text, "the reservations are unknown: ")
}
