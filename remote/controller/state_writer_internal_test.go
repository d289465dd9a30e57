package controller

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// While the disk is slow, what comes is written together, the newest once.
func TestWritesOfASlowDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w stateWriter
		var disk []int
		begun := time.Now()
		write := func(n int) <-chan struct{} {
			return w.Write(func() { time.Sleep(time.Second); disk = append(disk, n) })
		}
		first := write(0)
		synctest.Wait()
		var last <-chan struct{}
		for n := range 9 {
			last = write(n + 1)
		}
		require.Zero(t, time.Since(begun), "Write does not wait")
		<-first
		require.Equal(t, time.Second, time.Since(begun))
		<-last
		require.Equal(t, 2*time.Second, time.Since(begun))
		w.Wait()
		require.Equal(t, []int{0, 9}, disk)
		<-write(10)
		require.Equal(t, []int{0, 9, 10}, disk, "it goes on after a rest")
		w.Wait()
	})
}

// What is said to be safe has been written, and never over something newer.
func TestManyWritersAtATime(t *testing.T) {
	var w stateWriter
	var disk, writing atomic.Int64
	done := make(chan bool)
	for range 8 {
		go func() {
			ok := true
			for range 500 {
				<-w.Write(func() {
					ok = ok && writing.Add(1) == 1
					disk.Add(1)
					writing.Add(-1)
				})
			}
			done <- ok
		}()
	}
	for range 8 {
		require.True(t, <-done, "two writes at a time")
	}
	w.Wait()
	require.LessOrEqual(t, disk.Load(), int64(4000))
	require.GreaterOrEqual(t, disk.Load(), int64(500), "each of a writer's writes is one that began after it asked")
}

func TestNothingToWrite(*testing.T) {
	var w stateWriter
	w.Wait()
	(*stateWriter)(nil).Wait()
}
