package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// statOf are the fields of /proc/PID/stat behind the name; the first is field 3.
func statOf(pid int) ([]string, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, err
	}
	return strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])), nil
}

// tick is the unit of times in /proc/PID/stat: USER_HZ is 100 on every Linux
// that Go runs on. The kernel counts finer than it tells, so a sum over many
// runs is good.
const tick = 10 * time.Millisecond

// ticks is the sum of fields of a stat, by their numbers in proc(5).
func ticks(fields []string, numbers ...int) (time.Duration, error) {
	var sum time.Duration
	for _, n := range numbers {
		value, err := strconv.ParseInt(fields[n-3], 10, 64)
		if err != nil {
			return 0, err
		}
		sum += time.Duration(value) * tick
	}
	return sum, nil
}

// cpuOf is the processor time that a process has taken itself.
func cpuOf(pid int) (time.Duration, error) {
	c, err := costOf(pid)
	return c.own, err
}
