package main

import (
	"time"

	"github.com/seed-3119e985/genv/snapshot"
)

// hostSpec is a host of the demo; hosts.example.yaml names the same.
type hostSpec struct {
	name, address string
	devices       int
	model         string
	totalMiB      int64
	failed        int // the index of a GPU that has fallen off the bus; 0 for none
}

const port = 7722 // of all hosts, as in hosts.example.yaml

var hostSpecs = []hostSpec{
	{"gpu-01", "127.77.0.1", 8, "NVIDIA A100-SXM4-80GB", 81920, 7},
	{"gpu-02", "127.77.0.2", 8, "NVIDIA A100-SXM4-80GB", 81920, 0},
	{"gpu-03", "127.77.0.3", 4, "NVIDIA H100 80GB HBM3", 81559, 0},
	{"gpu-04", "127.77.0.4", 4, "NVIDIA H100 80GB HBM3", 81559, 0},
}

// rules are what the demo enforces, in addition to the two rules that always hold.
var rules = []string{"--non-env-processes", "--max-devices-per-user", "2"}

// envSpec is an environment, with the shell in which its owner activated it.
type envSpec struct {
	host     string
	user     string
	name     string
	capacity string         // memory on each device; empty for all of it
	attached []attachedSpec // in the order of the devices
}

// attachedSpec is an attached device.
type attachedSpec struct {
	device    snapshot.DeviceIndex
	minutes   int    // before now
	violation string // why it is detached; empty when it stays
}

// jobSpec is a process.
type jobSpec struct {
	host      string
	user      string // the owner; empty for a process in no environment
	program   string
	device    snapshot.DeviceIndex
	miB       int64
	load      int           // in percent of the device
	violation string        // why it is ended; empty for a process that must keep running
	ending    time.Duration // from SIGTERM to the end
}

var envSpecs = []envSpec{
	{host: "gpu-01", user: "alice", name: "llama", attached: []attachedSpec{{device: 0, minutes: 50}, {device: 1, minutes: 49}}},
	{host: "gpu-02", user: "bob", name: "vision", attached: []attachedSpec{{device: 0, minutes: 120}}},
	{host: "gpu-02", user: "erin", attached: []attachedSpec{{device: 5, minutes: 90}}},
	{host: "gpu-03", user: "carol", name: "speech", capacity: "20g", attached: []attachedSpec{{device: 0, minutes: 80}}},
	{host: "gpu-03", user: "dave", attached: []attachedSpec{{device: 2, minutes: 40}}},
	{host: "gpu-04", user: "dave", capacity: "40g", attached: []attachedSpec{{device: 3, minutes: 30}}},
	{host: "gpu-04", user: "erin", name: "sweep", attached: []attachedSpec{
		{device: 0, minutes: 60},
		{device: 1, minutes: 55, violation: "idle, and erin has 4 devices where 2 are allowed"},
		{device: 2, minutes: 5, violation: "erin's newest, and she still has 3"},
	}},
}

var jobSpecs = []jobSpec{
	{host: "gpu-01", user: "alice", program: "train.py", device: 0, miB: 61000, load: 97},
	{host: "gpu-01", user: "alice", program: "train.py", device: 1, miB: 61000, load: 93},
	{host: "gpu-01", program: "miner", device: 6, miB: 4200, load: 99, violation: "in no environment"},
	{host: "gpu-02", user: "bob", program: "resnet.py", device: 0, miB: 22000, load: 71},
	{host: "gpu-02", user: "bob", program: "notebook", device: 3, miB: 9000, load: 38, violation: "GPU 3 is not attached to bob"},
	{host: "gpu-02", user: "erin", program: "sweep.py", device: 5, miB: 12000, load: 88},
	{host: "gpu-03", user: "carol", program: "whisper.py", device: 0, miB: 15000, load: 64},
	{host: "gpu-03", user: "carol", program: "eval.py", device: 0, miB: 8000, load: 64, violation: "carol's two hold more than her 20g"},
	{host: "gpu-03", user: "dave", program: "serve.py", device: 2, miB: 40000, load: 0},
	{host: "gpu-04", user: "dave", program: "tune.py", device: 3, miB: 30000, load: 95},
	{host: "gpu-04", user: "erin", program: "sweep.py", device: 0, miB: 12000, load: 81},
	{host: "gpu-04", user: "erin", program: "sweep.py", device: 2, miB: 12000, load: 86, violation: "on a device beyond erin's 2", ending: time.Second},
}
