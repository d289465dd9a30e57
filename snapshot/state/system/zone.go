package system

import (
	"os"
	"sync"
	"time"
)

// localtime is the time zone of the machine, see localtime(5).
const localtime = "/etc/localtime"

// Now is the time in the zone of this machine: the dates in the state files are on that clock,
// whatever TZ says in a user's shell or in the login of a controller.
func Now() time.Time { return time.Now().In(zone()) }

var zone = sync.OnceValue(func() *time.Location {
	if _, set := os.LookupEnv("TZ"); !set {
		return time.Local
	}
	return zoneIn(localtime)
})

// zoneIn is the zone of a file as in tzfile(5). Without a valid one, the zone is UTC.
func zoneIn(path string) *time.Location {
	data, err := os.ReadFile(path)
	if err != nil {
		return time.UTC
	}
	zone, err := time.LoadLocationFromTZData("Local", data)
	if err != nil {
		return time.UTC
	}
	return zone
}
