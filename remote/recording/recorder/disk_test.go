package recorder_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/remote/recording"
	"github.com/seed-3119e985/genv/remote/recording/recorder"
)

// read are the numbers of what was recorded, how many are noted as missing, and what can't be read.
func read(t *testing.T, dir string) (numbers []int, missing int, damage []recording.Damage) {
	files, err := recording.Files(dir)
	require.NoError(t, err)
	var gaps []recording.Gap
	summary, err := recording.Read(files, func(s *recording.Step) error {
		numbers, gaps = append(numbers, s.Number), append(gaps, s.Gaps...)
		return nil
	})
	require.NoError(t, err)
	for _, g := range append(gaps, summary.Gaps...) {
		missing += g.Judgements
	}
	return numbers, missing, summary.Damage
}

// A full disk delays no cycle. It is said once, the recording goes on as soon as there is room, and
// says what is missing.
func TestAFullDisk(t *testing.T) {
	disk := t.TempDir()
	if err := unix.Mount("none", disk, "tmpfs", 0, "size=256k"); err != nil {
		t.Skipf("only root can mount a small file system: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, unix.Unmount(disk, 0)) })
	dir, ballast := filepath.Join(disk, "recording"), filepath.Join(disk, "ballast")
	r := start(t, recorder.Options{Dir: dir, MaxWaiting: many})
	until := func(says string) {
		for i := 0; i < 2000 && !strings.Contains(r.log.String(), says); i++ {
			r.cycles(6) // a minute, after which it is written
			time.Sleep(time.Millisecond)
		}
		require.Contains(t, r.log.String(), says)
	}
	r.cycles(20)
	require.Eventually(t, func() bool {
		files, err := recording.Files(dir)
		return err == nil && len(files) == 1 && files[0].Size > 0
	}, 10*time.Second, time.Millisecond)
	_ = os.WriteFile(ballast, make([]byte, 1<<20), 0o600) // as much as fits
	until("can't be recorded")
	require.Contains(t, r.log.String(), unix.ENOSPC.Error())
	r.cycles(30)
	require.NoError(t, os.Remove(ballast))
	until("recorded again")
	r.cycles(20)
	r.Close()
	numbers, missing, damage := read(t, dir)
	require.Positive(t, missing)
	require.Equal(t, r.number, len(numbers)+missing)
	require.Equal(t, r.number, numbers[len(numbers)-1])
	require.LessOrEqual(t, len(damage), 1, "the file that was being written")
	for _, d := range damage {
		require.ErrorIs(t, d.Err, recording.ErrCut)
	}
	require.Equal(t, 2, strings.Count(r.log.String(), "\n"), r.log.String())
}

// folderVariable has TestRecordUntilKilled record there.
const folderVariable = "GENV_TEST_RECORD"

func TestRecordUntilKilled(t *testing.T) {
	dir := os.Getenv(folderVariable)
	if dir == "" {
		t.Skip("TestKilledWhileItWrites runs it in a process of its own")
	}
	r := start(t, recorder.Options{Dir: dir})
	r.now = time.Now()
	for {
		r.now = r.now.Add(time.Minute) // each is written at once
		r.cycles(1)
	}
}

// After kill -9 at any moment, all is read that was written, and nothing else; the next run begins
// a file of its own.
func TestKilledWhileItWrites(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "recording")
	before := 0
	for range 4 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestRecordUntilKilled$")
		cmd.Env = append(os.Environ(), folderVariable+"="+dir)
		require.NoError(t, cmd.Start())
		require.Eventually(t, func() bool {
			files, err := recording.Files(dir)
			return err == nil && len(files) > before+1
		}, 20*time.Second, time.Millisecond)
		require.NoError(t, cmd.Process.Kill())
		require.Error(t, cmd.Wait())
		files, err := recording.Files(dir)
		require.NoError(t, err)
		before = len(files)
	}
	numbers, missing, damage := read(t, dir)
	runs := 0
	for i, n := range numbers {
		if n == 1 {
			runs++
			continue
		}
		require.Greater(t, n, numbers[i-1])
	}
	require.Equal(t, 4, runs)
	require.Greater(t, len(numbers), 100)
	require.GreaterOrEqual(t, missing, 0)
	require.LessOrEqual(t, len(damage), 4)
	for _, d := range damage {
		require.ErrorIs(t, d.Err, recording.ErrCut)
	}
}
