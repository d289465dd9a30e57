package proc

import (
	"os"
	"strings"
)

// Hiding says whether /proc hides the processes of users from each other: its mount options
// hidepid and gid, see proc(5).
type Hiding struct {
	On    bool
	Group string // the number of a group from which nothing is hidden; empty for none
}

// Hiding is that of this host. What can't be read counts as hidden.
func (fs FS) Hiding() Hiding {
	mounts, err := os.ReadFile(fs.root() + "/self/mountinfo")
	if err != nil {
		return Hiding{On: true}
	}
	return ParseHiding(string(mounts))
}

// ParseHiding reads the options of /proc in the lines of /proc/PID/mountinfo.
func ParseHiding(mountinfo string) (h Hiding) {
	for line := range strings.Lines(mountinfo) {
		mount, source, _ := strings.Cut(line, " - ")
		point, fields := strings.Fields(mount), strings.Fields(source)
		if len(point) < 5 || point[4] != "/proc" || len(fields) < 3 || fields[0] != "proc" {
			continue
		}
		h = Hiding{} // the last mount covers the others
		for option := range strings.SplitSeq(fields[2], ",") {
			switch name, value, _ := strings.Cut(option, "="); name {
			case "hidepid": // a number before Linux 5.8
				h.On = value != "0" && value != "off"
			case "gid":
				h.Group = value
			}
		}
	}
	return h
}
