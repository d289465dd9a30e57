package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
)

// processorTimes are the ticks of all processors since the boot, of which a hypervisor gave
// some to other machines (proc_stat(5), steal).
type processorTimes struct{ all, stolen uint64 }

func readProcessorTimes() (processorTimes, error) {
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		return processorTimes{}, err
	}
	first, _, _ := bytes.Cut(data, []byte("\n"))
	return parseProcessorTimes(first)
}

// parseProcessorTimes reads the first line of /proc/stat.
func parseProcessorTimes(line []byte) (t processorTimes, err error) {
	words := bufio.NewScanner(bytes.NewReader(line))
	words.Split(bufio.ScanWords)
	for i := -1; words.Scan() && i < 8; i++ { // those after steal are counted before, too
		if i < 0 {
			continue
		}
		n, err := strconv.ParseUint(words.Text(), 10, 64)
		if err != nil {
			return t, fmt.Errorf("/proc/stat: %w", err)
		}
		t.all += n
		t.stolen = n
	}
	if t.all == 0 {
		return t, errors.New("/proc/stat has no processor times")
	}
	return t, nil
}

// stolenSince is the share of the processor time since then that other machines had, in per
// cent.
func (t processorTimes) stolenSince(then processorTimes) float64 {
	if t.all == then.all {
		return 0
	}
	return 100 * float64(t.stolen-then.stolen) / float64(t.all-then.all)
}
