package audit_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/snapshot"
)

// followed is a log and what a Follower has read of it.
type followed struct {
	t    *testing.T
	path string
	log  *audit.Log
	*audit.Follower
}

func follow(t *testing.T) *followed {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	f := &followed{t, path, &audit.Log{Path: path}, audit.NewFollower(path)}
	t.Cleanup(f.Close)
	return f
}

// append appends a record for each cycle.
func (f *followed) append(cycles ...int) {
	for _, n := range cycles {
		require.NoError(f.t, f.log.Append(audit.Record{Time: at(0), Kind: audit.KindOverLimit, Cycle: n}))
	}
}

func (f *followed) write(text string) {
	file, err := os.OpenFile(f.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	require.NoError(f.t, err)
	defer file.Close()
	_, err = file.WriteString(text)
	require.NoError(f.t, err)
}

// new are the cycles of the records that are new.
func (f *followed) new() []int {
	cycles, damage := f.newWithDamage()
	require.Zero(f.t, damage)
	return cycles
}

func (f *followed) newWithDamage() (cycles []int, damage audit.Damage) {
	damage, err := f.Next(func(r *audit.Record) { cycles = append(cycles, r.Cycle) })
	require.NoError(f.t, err)
	return cycles, damage
}

func TestFollow(t *testing.T) {
	f := follow(t)
	require.Empty(t, f.new(), "there is no log yet")
	f.append(1, 2)
	require.Equal(t, []int{1, 2}, f.new())
	require.Empty(t, f.new())
	f.append(3)
	require.Equal(t, []int{3}, f.new())
}

func TestFollowReadsCompleteLines(t *testing.T) {
	f := follow(t)
	const line = `{"time":"2026-11-20T10:00:00Z","kind":"held","cycle":7}` + "\n"
	for i := range line {
		require.Empty(t, f.new())
		f.write(line[i : i+1])
	}
	require.Equal(t, []int{7}, f.new())
	f.write("{\n" + line + line[:9])
	cycles, damage := f.newWithDamage()
	require.Equal(t, []int{7}, cycles)
	require.Equal(t, audit.Damage{Lines: 1, First: f.path + ":2"}, damage)
	f.append(8) // ends the line that was cut off
	cycles, damage = f.newWithDamage()
	require.Equal(t, []int{8}, cycles)
	require.Equal(t, audit.Damage{Lines: 1, First: f.path + ":4"}, damage)
}

// A log is rotated between two looks: once or more often, and then begins with files that
// were rotated before.
func TestFollowOverRotations(t *testing.T) {
	for rotations := 1; rotations <= 4; rotations++ {
		f := follow(t)
		f.append(1, 2)
		f.log.MaxBytes = 1 // each record gets a file of its own from now on
		f.append(3, 4)
		require.Equal(t, []int{1, 2, 3, 4}, f.new())
		f.append(numbers(5, rotations)...)
		require.Equal(t, numbers(5, rotations), f.new())
		require.Empty(t, f.new())
	}
}

// Files that are removed before they were read are lost, and no others.
func TestFollowFindsItsWayWhenFilesAreGone(t *testing.T) {
	f := follow(t)
	f.log.MaxBytes, f.log.Keep = 1, 2
	f.append(1)
	require.Equal(t, []int{1}, f.new())
	f.append(2, 3, 4, 5)
	require.Equal(t, []int{3, 4, 5}, f.new())

	require.NoError(t, os.Rename(f.path, f.path+"-20261120"))
	require.Empty(t, f.new())
	f.append(6)
	require.Equal(t, []int{6}, f.new(), "after logrotate with another naming; 3 and 4 are older")
	require.NoError(t, os.Remove(f.path))
	f.append(7)
	require.Equal(t, []int{7}, f.new())
}

func TestFollowTruncated(t *testing.T) {
	f := follow(t)
	f.append(1, 2, 3)
	require.Len(t, f.new(), 3)
	require.NoError(t, os.Truncate(f.path, 0))
	require.Empty(t, f.new())
	f.append(4)
	require.Equal(t, []int{4}, f.new())
}

// What was written when the disk was full is taken back, while the file is locked.
func TestFollowDoesNotReadWhatIsTakenBack(t *testing.T) {
	f := follow(t)
	f.append(1)
	require.Len(t, f.new(), 1)
	writer, err := os.OpenFile(f.path, os.O_RDWR, 0)
	require.NoError(t, err)
	defer writer.Close()
	require.NoError(t, unix.Flock(int(writer.Fd()), unix.LOCK_EX))
	info, err := writer.Stat()
	require.NoError(t, err)
	f.write("{}\n")
	require.Empty(t, f.new())
	require.NoError(t, writer.Truncate(info.Size()))
	require.NoError(t, unix.Flock(int(writer.Fd()), unix.LOCK_UN))
	f.append(2)
	require.Equal(t, []int{2}, f.new())
}

// A line that was cut off at the end of a file that is rotated counts as damaged.
func TestFollowReadsTheEndOfARotatedFile(t *testing.T) {
	f := follow(t)
	f.append(1)
	require.Len(t, f.new(), 1)
	f.write(`{"kind":`)
	require.Empty(t, f.new())
	require.NoError(t, os.Rename(f.path, f.path+".1"))
	f.append(2)
	cycles, damage := f.newWithDamage()
	require.Equal(t, []int{2}, cycles)
	require.Equal(t, 1, damage.Lines)
}

// Four programs append to a log that is rotated again and again: each record is read once,
// and those of a program in their order.
func TestFollowWhileOthersWrite(t *testing.T) {
	f := follow(t)
	done := make(chan error)
	const writers, each = 4, 50
	for w := range writers {
		go func() {
			log := audit.Log{Path: f.path, MaxBytes: 500, Keep: 1000}
			for i := range each {
				if err := log.Append(audit.Record{Time: at(0), Kind: audit.KindOverLimit, Run: fmt.Sprint(w), Cycle: i}); err != nil {
					done <- err
					return
				}
				time.Sleep(time.Millisecond) // the lock is not fair, and is waited for 2 s at most
			}
			done <- nil
		}()
	}
	next := map[string]int{}
	for left := writers; left >= 0; {
		damage, err := f.Next(func(r *audit.Record) {
			require.Equal(t, next[r.Run], r.Cycle, r.Run)
			next[r.Run]++
		})
		require.NoError(t, err)
		require.Zero(t, damage)
		select {
		case err := <-done:
			require.NoError(t, err)
			left--
		default:
			if left == 0 {
				left--
			}
		}
	}
	require.Equal(t, map[string]int{"0": each, "1": each, "2": each, "3": each}, next)
}

func TestTail(t *testing.T) {
	path := story(t)
	tail := audit.NewTail(path, audit.Filter{User: "bob"})
	defer tail.Close()
	entries := func() (lines []string) {
		list, damage, err := tail.Entries()
		require.NoError(t, err)
		require.Zero(t, damage)
		for _, e := range list {
			lines = append(lines, strings.TrimSpace(fmt.Sprintf("%d %s %s", e.PID, e.EID, e.Status)))
		}
		return lines
	}
	require.Equal(t, []string{"0 10 detached", "5 10 terminated"}, entries())
	log := audit.Log{Path: path}
	item := func(pid snapshot.PID) audit.Record {
		return audit.Record{Time: at(8), Kind: audit.KindOrder, Order: "r/2/a", Host: "a", User: "bob", PID: pid}
	}
	require.NoError(t, log.Append(item(6), item(7)))
	require.Empty(t, entries(), "they are under way")
	outcome := audit.OutcomeRecords([]audit.Record{item(7), item(6)}, []order.Outcome{{Status: order.StatusGone}, {Status: order.StatusKilled}})
	require.NoError(t, log.Append(outcome[0]))
	require.Equal(t, []string{"7  gone"}, entries())
	require.NoError(t, log.Append(outcome[1]))
	require.Equal(t, []string{"6  killed"}, entries())
	require.Empty(t, entries())
}

func numbers(from, count int) (list []int) {
	for i := range count {
		list = append(list, from+i)
	}
	return list
}
