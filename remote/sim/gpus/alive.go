package gpus

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Start reads a process's start time, field 22 of /proc/PID/stat (man 5
// proc_pid_stat), and whether it lives: a zombie holds no GPU.
func Start(proc string, pid int) (start uint64, alive bool, err error) {
	data, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, false, err
	}
	return parseStat(string(data))
}

// parseStat finds fields 3 (state) and 22 behind the last ")", for the name in
// field 2 may hold anything.
func parseStat(stat string) (start uint64, alive bool, err error) {
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 {
		return 0, false, fmt.Errorf("%q is no /proc/PID/stat", stat)
	}
	start, err = strconv.ParseUint(fields[19], 10, 64)
	if err != nil {
		return 0, false, fmt.Errorf("%q is no start time: %w", fields[19], err)
	}
	return start, fields[0] != "Z" && fields[0] != "X", nil
}

// Living is the host without the apps whose process has ended.
func (h Host) Living(proc string) Host {
	h.Apps = slices.DeleteFunc(slices.Clone(h.Apps), func(a App) bool {
		start, alive, err := Start(proc, a.PID)
		return err != nil || !alive || (a.Start != 0 && a.Start != start)
	})
	return h
}
