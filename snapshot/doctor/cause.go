package doctor

import "sync"

// Cause is why a check isn't OK. The words appear in JSON.
type Cause string

// The causes that a host finds about itself. What a controller finds also has the words
// of remote.Class.
const (
	GenvWritable Cause = "genv-writable"

	SMIMissing        Cause = "nvidia-smi-missing"
	NoDriver          Cause = "no-driver"
	VersionMismatch   Cause = "driver-version-mismatch"
	NoGPUs            Cause = "no-gpus"
	GPULost           Cause = "gpu-lost"
	DriverPermission  Cause = "driver-permission"
	SMIHung           Cause = "nvidia-smi-hung"
	SMIFailed         Cause = "nvidia-smi-failed"
	PersistenceOff    Cause = "persistence-off"
	PersistenceHidden Cause = "persistence-unknown"
	SMISlow           Cause = "nvidia-smi-slow"

	StateUnsafe     Cause = "state-unsafe"
	StateCorrupt    Cause = "state-corrupt"
	StateMode       Cause = "state-mode"
	StateReadOnly   Cause = "state-read-only"
	StateSticky     Cause = "state-sticky"
	StateUnreadable Cause = "state-unreadable"
	StateLost       Cause = "state-lost"
	StateLocked     Cause = "state-locked"
	RootFolder      Cause = "root-folder-unsafe"

	ClockOff            Cause = "clock-off"
	ClockWrong          Cause = "clock-wrong"
	ClockUncertain      Cause = "clock-uncertain"
	ClockUnsynchronized Cause = "clock-unsynchronized"

	OtherNamespace Cause = "other-pid-namespace"

	NoCgroup2 Cause = "no-cgroup2"
	OldKernel Cause = "old-kernel"
	NoBPF     Cause = "no-bpf"

	ServiceFailed   Cause = "service-failed"
	ServiceStopped  Cause = "service-stopped"
	ServiceDisabled Cause = "service-disabled"
	ServiceUnknown  Cause = "services-unknown"

	DiskFull     Cause = "disk-full"
	DiskLow      Cause = "disk-low"
	DiskReadOnly Cause = "disk-read-only"
	RecordUnsafe Cause = "record-unsafe"
)

// meaning is what follows from a cause.
type meaning struct {
	status Status
	step   string
}

// meanings is made when it is first used: every start of genv would pay for it otherwise.
var meanings = sync.OnceValue(func() map[Cause]meaning {
	return map[Cause]meaning{
		GenvWritable: {Failed, "have root own it and its folder: chown root: FILE && chmod 0755 FILE; sudo must not run a program that others can change"},

		SMIMissing:        {Failed, "install the NVIDIA driver with nvidia-smi where every login finds it (/usr/bin), or link it there"},
		NoDriver:          {Failed, "load the driver: `modprobe nvidia`; if that fails, look at `dmesg`"},
		VersionMismatch:   {Failed, "the driver was updated and the old one is still loaded: reboot, or end the processes that use the GPUs and load the new one"},
		NoGPUs:            {Failed, "look at `lspci -d 10de:` and `dmesg`: the driver finds no GPU"},
		GPULost:           {Failed, "look at `dmesg` for Xid, then reset the GPU or reboot"},
		DriverPermission:  {Failed, "give users access to /dev/nvidia*, or look as root"},
		SMIHung:           {Failed, "look at `dmesg` for Xid: a GPU or its driver hangs; reset the GPU or reboot"},
		SMIFailed:         {Failed, "run nvidia-smi on the host and look at what it prints"},
		PersistenceOff:    {Warning, "turn it on: `systemctl enable --now nvidia-persistenced`, or `nvidia-smi -pm 1`; without it each call of nvidia-smi takes up to 3 s per GPU"},
		PersistenceHidden: {Warning, "run `nvidia-smi -q -d PERFORMANCE` on the host: the driver does not report its persistence mode"},
		SMISlow:           {Warning, "look at `dmesg` and at the load of the host: a call should take less than 2 s"},

		StateUnsafe:     {Failed, "find out who put it there and remove it, then run `sudo genv envs` on the host: genv makes only regular files there"},
		StateCorrupt:    {Failed, "run `sudo genv envs` on the host, which restores root's last good copy; without one, start over with `sudo genv envs --reset` or `sudo genv devices --reset`"},
		StateMode:       {Failed, "run `sudo genv envs` on the host, which repairs it, or chmod the folder to 0777 and the files in it to 0666"},
		StateReadOnly:   {Warning, "chmod the folder to 0777 and the files in it to 0666, unless users are not to attach devices by themselves"},
		StateSticky:     {Warning, "chmod 0777 the folder: with the sticky bit, users can't replace each other's state files"},
		StateUnreadable: {Failed, "chmod it for all users, or run genv as root to see more"},
		StateLost:       {Failed, "run `sudo genv envs` on the host, which restores it from root's copy"},
		StateLocked:     {Warning, "find out what that process does, and end it if it doesn't end by itself: nothing can be attached meanwhile"},
		RootFolder:      {Failed, "have root alone own and write it: chown root: FOLDER && chmod 0755 FOLDER; what is in it is trusted"},

		ClockOff:            {Warning, "have the host's clock synchronized (chrony or systemd-timesyncd): ages and caps compare times of several hosts"},
		ClockWrong:          {Failed, "set the host's clock and have it synchronized (chrony or systemd-timesyncd): ages, caps and time limits are wrong"},
		ClockUncertain:      {Warning, "run it again when the network and the host are less busy"},
		ClockUnsynchronized: {Warning, "have the clock synchronized (chrony or systemd-timesyncd); ignore this in a virtual machine that has its host's clock"},

		OtherNamespace: {Failed, "run genv where the processes of the state files run (outside of the container), or use another state folder here (GENV_TMPDIR)"},

		NoCgroup2: {Warning, "boot with systemd.unified_cgroup_hierarchy=1, or mount cgroup2; only the kernel guard needs it"},
		OldKernel: {Warning, "use Linux 5.8 or newer; only the kernel guard needs it"},
		NoBPF:     {Warning, "use a kernel with CONFIG_BPF_SYSCALL and CONFIG_CGROUP_BPF; only the kernel guard needs it"},

		ServiceFailed:   {Failed, "look at `systemctl status UNIT` and `journalctl -u UNIT`, then `systemctl restart UNIT`"},
		ServiceStopped:  {Warning, "start it: `systemctl start UNIT`, or disable it if it isn't wanted"},
		ServiceDisabled: {Warning, "have it started at boot: `systemctl enable UNIT`"},
		ServiceUnknown:  {Warning, "run `systemctl status 'genv-*'` on the host"},

		DiskFull:     {Failed, "free space or inodes there: the record of what is done can't be written"},
		DiskLow:      {Warning, "free space there soon: the record of what is done needs it"},
		DiskReadOnly: {Failed, "mount it read-write, or set GENV_AUDIT_LOG, GENV_TMPDIR or GENV_ROOT_DIR to another folder"},
		RecordUnsafe: {Failed, "have root own the folder of the record, with mode 0755 at most: users could replace the record"},
	}
})

// Status is how bad a cause is; Failed if it is not known here.
func (c Cause) Status() Status {
	if m, known := meanings()[c]; known {
		return m.status
	}
	return Failed
}

// NextStep is what to do about a cause, in one line; empty if it is not known here.
func (c Cause) NextStep() string { return meanings()[c].step }
