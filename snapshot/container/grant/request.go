package grant

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/container/oci"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Variables for genv, set by `docker run -e` or the flags of `genv docker run`.
const (
	TokenVariable = "GENV_CONTAINER_TOKEN" // root's service's, for its user
	GPUs          = "GENV_GPUS"            // number of devices, or "all", for an environment of its own
	GPUMemory     = "GENV_GPU_MEMORY"
	OverSubscribe = "GENV_ALLOW_OVER_SUBSCRIPTION"
	Name          = "GENV_ENVIRONMENT_NAME"
	Contained     = "GENV_CONTAINER" // set in containers with an environment
)

const visible = "NVIDIA_VISIBLE_DEVICES"

// ErrRequest means that a container's request for GPUs is invalid.
var ErrRequest = errors.New("not understood")

// GPURequest is a container's request.
type GPURequest struct {
	Token string         // empty for none
	EID   snapshot.EnvID // the claimed environment; empty for none

	Count  int             // of any devices; 0 for named ones
	All    bool            // all devices
	Names  []string        // indices and UUIDs
	Minors []int           // numbers of device nodes, /dev/nvidiaN
	Memory snapshot.Memory // the capacity on each
	Called string          // name for an environment of its own

	OverSubscribe bool
}

// AsksForGPUs says whether it requests any.
func (r *GPURequest) AsksForGPUs() bool {
	return r.Count > 0 || r.All || len(r.Names) > 0 || len(r.Minors) > 0
}

// Asked reads a container's request. nvidia says that the next runtime obeys NVIDIA_VISIBLE_DEVICES, which many images
// set; else only NVIDIA's hook does. Only a request for GPUs can have an error, which wraps ErrRequest.
func Asked(c *oci.ContainerConfig, nvidia bool) (GPURequest, error) {
	r := GPURequest{
		Token: c.Getenv(TokenVariable), EID: snapshot.Claim(c.Getenv(snapshot.ClaimVariable)),
		OverSubscribe: isSet(c, OverSubscribe),
	}
	if list := c.Getenv(visible); list != "void" && list != "none" && (nvidia || hasNVIDIAHook(c)) {
		r.name(list) // docker sets it for --gpus, too
	}
	if err := r.askByCount(c.Getenv(GPUs)); err != nil {
		return r, err
	}
	r.askByAnnotation(c)
	for _, d := range c.Devices { // by --device /dev/nvidia0, or by an engine (dockerd) from CDI devices
		if !c.AllDevices && // those nodes weren't requested
			d.Type == "c" && d.Major == nvidiaMajor && d.Minor >= 0 && d.Minor <= maxGPUMinor {
			r.Minors = append(r.Minors, int(d.Minor))
		}
	}
	if !r.AsksForGPUs() {
		return r, nil
	}
	if memory := c.Getenv(GPUMemory); memory != "" {
		var err error
		if r.Memory, err = snapshot.ParseMemory(memory); err != nil || len(memory) > maxMemory ||
			r.Memory.Bytes() == 0 {
			return r, fmt.Errorf("%s=%s: %w: write an amount such as 4g", GPUMemory, text.Quoted(memory, maxShown),
				ErrRequest)
		}
	}
	r.Called = c.Getenv(Name)
	return r, r.Check()
}

// Check refuses what Asked wouldn't return. Its error wraps ErrRequest.
func (r *GPURequest) Check() error {
	if err := snapshot.CheckName(Name, r.Called); err != nil {
		return fmt.Errorf("%w: %w", ErrRequest, err)
	}
	switch {
	case len(r.Names)+len(r.Minors) > maxDevices, r.Count < 0, r.Count > maxCount:
		return fmt.Errorf("%w: more than %d GPUs", ErrRequest, maxDevices)
	case r.EID != "" && snapshot.Claim(string(r.EID)) != r.EID:
		return fmt.Errorf("%w: no environment has such an id", ErrRequest)
	case len(r.Memory.String()) > maxMemory, r.Memory.Known() && r.Memory.Bytes() == 0:
		return fmt.Errorf("%w: no amount of memory", ErrRequest)
	}
	return nil
}

const (
	maxMemory  = 64   // bytes
	maxShown   = 60   // bytes of a value in a message
	maxDevices = 1024 // no host has more
	maxCount   = 1<<16 - 1
)

func isSet(c *oci.ContainerConfig, name string) bool { v := c.Getenv(name); return v != "" && v != "0" }

// askByCount reads GENV_GPUS, which replaces the choice of docker's --gpus.
func (r *GPURequest) askByCount(value string) error {
	n, err := strconv.ParseUint(value, 10, 16)
	switch {
	case value == "" || err == nil && n == 0:
		return nil
	case value == "all":
		r.All = true
	case err != nil:
		return fmt.Errorf("%s=%s: %w: write a number, or all", GPUs, text.Quoted(value, maxShown), ErrRequest)
	default:
		r.Count, r.All, r.Names = int(n), false, nil
	}
	return nil
}

func (r *GPURequest) name(list string) {
	for name := range strings.SplitSeq(list, ",") {
		switch name = strings.TrimSpace(name); {
		case name == "all":
			r.All = true
		case name != "" && !slices.Contains(r.Names, name):
			r.Names = append(r.Names, name)
		}
	}
}

func hasNVIDIAHook(c *oci.ContainerConfig) bool {
	for _, stage := range []string{"prestart", "createRuntime"} {
		for _, h := range c.Hooks[stage] {
			switch filepath.Base(h.Path) {
			case "nvidia-container-runtime-hook", "nvidia-container-toolkit":
				return true
			}
		}
	}
	return false
}

// cdi begins the GPUs of the Container Device Interface, cdiAnnotation the annotations that list them.
const (
	cdi           = "nvidia.com/gpu="
	cdiAnnotation = "cdi.k8s.io/"
)

// askByAnnotation reads the devices that an engine leaves to the runtime.
func (r *GPURequest) askByAnnotation(c *oci.ContainerConfig) {
	for name, value := range c.Annotations {
		if !strings.HasPrefix(name, cdiAnnotation) {
			continue
		}
		for device := range strings.SplitSeq(value, ",") {
			if gpu, ok := strings.CutPrefix(strings.TrimSpace(device), cdi); ok {
				r.name(gpu)
			}
		}
	}
	slices.Sort(r.Names)
}

// Device numbers of GPUs: the Linux allocated devices list, and NVIDIA's /dev/nvidiactl.
const (
	nvidiaMajor = 195
	maxGPUMinor = 253 // above it are nvidia-modeset and nvidiactl
)

const cudaVisible = "CUDA_VISIBLE_DEVICES"

// SetVariables tells a container's first process what it got. It always removes the token.
func (g Granted) SetVariables(c *oci.ContainerConfig) {
	c.UnsetEnv(TokenVariable)
	if g.EID == "" {
		return
	}
	c.SetEnv(snapshot.ClaimVariable, string(g.EID))
	c.SetEnv(Contained, "1")
	c.UnsetEnv(Name)
	if g.Name != "" {
		c.SetEnv(Name, g.Name)
	}
	if !g.GPUs {
		return
	}
	if g.Memory.Known() {
		c.SetEnv(GPUMemory, g.Memory.String())
	}
	list := g.visible()
	c.SetEnv(visible, list)
	// A container sees only its own devices: an index among them is as good as a UUID.
	if _, set := c.LookupEnv(cudaVisible); !set && g.UUIDs != nil {
		c.SetEnv(cudaVisible, list)
	}
}

func (g Granted) visible() string {
	if len(g.Devices) == 0 {
		return "void"
	}
	if g.UUIDs == nil {
		return text.JoinIndices(g.Devices)
	}
	names := make([]string, len(g.UUIDs))
	for i, uuid := range g.UUIDs {
		names[i] = string(uuid)
	}
	return strings.Join(names, ",")
}
