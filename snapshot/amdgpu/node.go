package amdgpu

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Errors of this package. In all cases nothing is known about the GPUs.
var (
	ErrNoDriver = errors.New("the kernel's compute driver for AMD GPUs (kfd) is not loaded: try `modprobe amdgpu`, and look at `dmesg` if that fails")
	// ErrHidden means that the kernel shows this process some of the GPUs only. Others of the
	// machine may be in use, so those few are not taken for all: look from outside the container.
	ErrHidden  = errors.New("this process may not look at all AMD GPUs, since its container or service may not open their render nodes in /dev/dri: run genv outside it, or give it all of them")
	ErrGarbled = errors.New("the kernel says something unexpected about the AMD GPUs")
)

// FS is where the kernel's files are. The zero FS is this machine.
type FS struct {
	Sys  string // where /sys is mounted; empty for /sys
	Proc string // where /proc is mounted; empty for /proc
	// Recent saves searches where one process looks again and again; nil searches each time.
	Recent *Recent
}

func (f FS) kfd(elements ...string) string {
	return filepath.Join(append([]string{cmp.Or(f.Sys, "/sys"), "class/kfd/kfd"}, elements...)...)
}

// node is a GPU of kfd.
type node struct {
	number  int // in the topology
	id      uint64
	uuid    snapshot.GPUUUID
	name    string
	render  uint64 // minor of the render node; 0 for none
	address string // of the PCI bus, as fdinfo has it
}

// Present says whether the machine has AMD GPUs for computing, also if this process may not look
// at them. It is cheap where there are none.
func (f FS) Present() bool {
	nodes, err := f.nodes()
	return err == nil && len(nodes) > 0 || errors.Is(err, ErrHidden)
}

// nodes lists the GPUs in the order of kfd, which also lists CPUs.
func (f FS) nodes() ([]node, error) {
	entries, err := os.ReadDir(f.kfd("topology/nodes"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNoDriver
	}
	if err != nil {
		return nil, err
	}
	var nodes []node
	for _, e := range entries {
		number, err := strconv.Atoi(e.Name())
		if err != nil {
			return nil, garbled(e.Name())
		}
		n, err := f.node(number)
		if err != nil {
			return nil, err
		}
		if n.id != 0 {
			nodes = append(nodes, n)
		}
	}
	slices.SortFunc(nodes, func(a, b node) int { return cmp.Compare(a.number, b.number) })
	setUUIDs(nodes)
	return nodes, nil
}

// node reads a node; the id of a CPU is 0.
func (f FS) node(number int) (node, error) {
	folder := f.kfd("topology/nodes", strconv.Itoa(number))
	n := node{number: number}
	id, err := readNumber(filepath.Join(folder, "gpu_id"))
	if errors.Is(err, fs.ErrPermission) { // kfd asks the device cgroup about the render node
		return n, fmt.Errorf("%w: %w", ErrHidden, err)
	}
	if err != nil || id == 0 {
		return n, err
	}
	data, err := read(filepath.Join(folder, "properties"))
	if err != nil {
		return n, err
	}
	properties, err := parseProperties(data)
	if err != nil {
		return n, err
	}
	name, _ := read(filepath.Join(folder, "name"))
	n.id, n.name, n.render, n.address = id, printable(name), properties["drm_render_minor"], addressOf(properties)
	if unique := properties["unique_id"]; unique != 0 {
		n.uuid = snapshot.GPUUUID(fmt.Sprintf("GPU-%016x", unique))
	}
	return n, nil
}

// setUUIDs gives GPUs without a UUID of their own one: those whose kernel doesn't report it,
// and partitions of a GPU, which have one together.
func setUUIDs(nodes []node) {
	count := map[snapshot.GPUUUID]int{}
	for _, n := range nodes {
		count[n.uuid]++
	}
	for i := range nodes {
		if n := &nodes[i]; n.uuid == "" || count[n.uuid] > 1 {
			n.uuid = snapshot.GPUUUID(fmt.Sprintf("KFD-%d", n.id))
		}
	}
}

// addressOf is the address of the PCI bus of a node.
func addressOf(properties map[string]uint64) string {
	at := properties["location_id"]
	return fmt.Sprintf("%04x:%02x:%02x.%x", properties["domain"], at>>8&0xff, at>>3&0x1f, at&7)
}

// parseProperties parses lines "key number". Lines of another form are ignored: each version of
// the kernel has its own.
func parseProperties(data []byte) (map[string]uint64, error) {
	properties := map[string]uint64{}
	for line := range bytes.Lines(data) {
		key, value, _ := strings.Cut(strings.TrimSpace(string(line)), " ")
		n, err := strconv.ParseUint(strings.TrimSpace(value), 10, 64)
		if err != nil {
			continue
		}
		if _, twice := properties[key]; twice {
			return nil, garbled(string(line))
		}
		properties[key] = n
	}
	if len(properties) == 0 {
		return nil, garbled(string(data))
	}
	return properties, nil
}

// maxFile bounds a file of the kernel, in bytes: all have some lines.
const maxFile = 64 << 10

func read(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, maxFile))
}

func readNumber(path string) (uint64, error) {
	data, err := read(path)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 64)
	if err != nil {
		return 0, garbled(string(data))
	}
	return n, nil
}

// printable is a name in a file; empty if it can't be shown.
func printable(data []byte) string {
	name := strings.TrimSpace(string(data))
	if len(name) > 80 || snapshot.CheckText("name", name) != nil {
		return ""
	}
	return name
}

func garbled(what string) error {
	return fmt.Errorf("%w: %s", ErrGarbled, text.Quoted(strings.TrimSpace(what), 80))
}
