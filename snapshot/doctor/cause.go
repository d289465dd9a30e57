package doctor

import "sync"

// Cause is why a check isn't OK. The words appear in JSON.
type Cause string

// meaning is what follows from a cause.
type meaning struct {
	status Status
	step   string // empty if it depends on the host
}

// meanings is made when it is first used: every start of genv would pay for it otherwise.
var meanings = sync.OnceValue(func() map[Cause]meaning {
	const upgrade = "install this genv on the host: `genv remote install -H HOST`"
	return map[Cause]meaning{
		"no-such-name":       {Failed, "correct the name, give the host an `address:` in hosts.yaml or a HostName in ssh_config, or check the resolver: getent ahosts NAME"},
		"connection-refused": {Failed, "start sshd on the host (`systemctl start ssh`), or correct the port: nothing listens there"},
		"no-route":           {Failed, "check that the host is up, and the network between: ping HOST; ip route get ADDRESS"},
		"silent":             {Failed, "something listens there and doesn't finish an SSH login: look at sshd and the load on the host's console"},
		"no-answer":          {Failed, "check that the host is up and that no firewall drops the packets; raise --timeout if the network is slow"},
		"host-key-unchecked": {Warning, "run it again without --insecure-ignore-host-keys"},

		"no-root":                 {Warning, ""},
		"sudo-covers-everything":  {Warning, ""},
		"sudo-covers-all-of-genv": {Warning, ""},

		"genv-1.4.3":             {Warning, upgrade + "; docs/migrating.md says what differs"},
		"genv-older":             {Warning, upgrade},
		"genv-not-in-login-path": {Warning, ""},
		"genv-two-programs":      {Warning, "remove one of them, or set `genv:` for the host in hosts.yaml"},
		"genv-writable":          {Failed, "have root own it and its folder: chown root: FILE && chmod 0755 FILE; sudo must not run a program that others can change"},

		"nvidia-smi-missing":      {Failed, "install the NVIDIA driver with nvidia-smi where every login finds it (/usr/bin), or link it there"},
		"no-driver":               {Failed, "load the driver: `modprobe nvidia`; if that fails, look at `dmesg`"},
		"driver-version-mismatch": {Failed, "the driver was updated and the old one is still loaded: reboot, or end the processes that use the GPUs and load the new one"},
		"no-gpus":                 {Failed, "look at `lspci -d 10de:` and `dmesg`: the driver finds no GPU"},
		"gpu-failed":              {Failed, "look at `dmesg` for Xid, then reset the GPU or reboot; genv gives the GPU to no user until then, and enforces the others"},
		"gpu-values-unknown":      {Warning, "look at `nvidia-smi -q` and `dmesg`: the GPU is given out after all others"},
		"driver-warning":          {Warning, "look at `nvidia-smi -q` for what the warning is about; genv uses all GPUs as before"},
		"gpu-lost":                {Failed, "look at `dmesg` for Xid, then reset the GPU or reboot"},
		"driver-permission":       {Failed, "give users access to /dev/nvidia*, or look as root"},
		"nvidia-smi-hung":         {Failed, "look at `dmesg` for Xid: a GPU or its driver hangs; reset the GPU or reboot"},
		"nvidia-smi-failed":       {Failed, "run nvidia-smi on the host and look at what it prints"},
		"persistence-off":         {Warning, "turn it on: `systemctl enable --now nvidia-persistenced`, or `nvidia-smi -pm 1`; without it each call of nvidia-smi takes up to 3 s per GPU"},
		"persistence-unknown":     {Warning, "run `nvidia-smi -q -d PERFORMANCE` on the host: the driver does not report its persistence mode"},
		"nvidia-smi-slow":         {Warning, "look at `dmesg` and at the load of the host: a call should take less than 2 s"},

		"state-shared":       {OK, "unless genv 1.4.3 is used there, let root own it: `genv remote install --state root -H HOST`, or with a package `sudo systemctl enable --now genv-host.socket genv-host.service`; docs/host.md says what changes"},
		"state-tampered":     {Failed, "find out who did it, and unmount it as root: `umount --lazy FOLDER`"},
		"state-unsafe":       {Failed, "find out who put it there and remove it; `sudo genv envs --reset` or `sudo genv devices --reset` begins again"},
		"state-corrupt":      {Failed, "restore it, or begin again with `sudo genv envs --reset` or `sudo genv devices --reset`: what it said is unknown, and no rule acts meanwhile"},
		"state-odd":          {Warning, "find out who wrote it: genv leaves it out and uses the rest"},
		"state-mode":         {Failed, "chmod the folder to 0777 and the files in it to 0666"},
		"state-read-only":    {Warning, "chmod the folder to 0777 and the files in it to 0666, unless users are not to attach GPUs by themselves"},
		"state-sticky":       {Warning, "chmod 0777 the folder: with the sticky bit, users can't replace each other's state files"},
		"state-unreadable":   {Failed, "chmod it for all users, or run genv as root to see more"},
		"state-lost":         {Failed, "restore it, or begin again with `sudo genv envs --reset` or `sudo genv devices --reset`: what it said is unknown, and no rule acts meanwhile"},
		"state-locked":       {Warning, "find out what that process does, and end it if it doesn't end by itself: nothing can be attached meanwhile"},
		"root-folder-unsafe": {Failed, "have root alone own and write it: chown root: FOLDER && chmod 0755 FOLDER; what is in it is trusted"},

		"clock-off":            {Warning, "have the host's clock synchronized (chrony or systemd-timesyncd): ages and caps compare times of several hosts"},
		"clock-wrong":          {Failed, "set the host's clock and have it synchronized (chrony or systemd-timesyncd): ages, caps and time limits are wrong"},
		"clock-unsynchronized": {Warning, "have the clock synchronized (chrony or systemd-timesyncd); ignore this in a virtual machine that has its host's clock"},

		"other-pid-namespace": {Failed, "run genv where the processes of the state files run (outside of the container), or use another state folder here (GENV_TMPDIR)"},

		"no-cgroup2": {Warning, "boot with systemd.unified_cgroup_hierarchy=1, or mount cgroup2; only the kernel guard needs it"},
		"old-kernel": {Warning, "use Linux 5.8 or newer; only the kernel guard needs it"},
		"no-bpf":     {Warning, "use a kernel with CONFIG_BPF_SYSCALL and CONFIG_CGROUP_BPF; only the kernel guard needs it"},

		"guard-impossible":  {Failed, "give the host a kernel that can (docs/guard.md says what that takes), or give it no guard in the policy: an override with `guard: off`"},
		"guard-unable":      {Failed, "run `sudo genv guard status` on the host: it says what is missing"},
		"guard-turned-off":  {Warning, "once the reason is gone, run `sudo genv guard resume` on the host, and remove /etc/genv/guard.off if it is there"},
		"guard-not-ordered": {Failed, "start the controller of this host, or look at `journalctl -u genv-controller` for why it doesn't reach it; a dry run orders nothing"},
		"guard-other-order": {Warning, "release what is on hold (`genv remote release`), or have the controller read the policy: `systemctl reload genv-controller`"},
		"guard-not-renewed": {Warning, "look at whether the controller or genv-guard still runs; if the guard is to be off, run `sudo genv guard off`"},

		"service-failed":   {Failed, "look at `systemctl status UNIT` and `journalctl -u UNIT`, then `systemctl restart UNIT`"},
		"service-stopped":  {Warning, "start it: `systemctl start UNIT`, or disable it if it isn't wanted"},
		"service-disabled": {Warning, "have it started at boot: `systemctl enable UNIT`"},
		"services-unknown": {Warning, "run `systemctl status 'genv-*'` on the host"},

		"controller-unknown": {Failed, "look at controller.json in /var/lib/genv on the host: if it is damaged and one controller runs, remove it"},
		"genv-refuses-none":  {Warning, upgrade},
		"later-epoch":        {Failed, "end all controllers of this election, give etcd another --initial-cluster-token or --leader another key, and start one controller once with --take-over"},
		"other-cluster":      {Failed, "end all controllers of this election, and start one once with --take-over"},
		"other-controller":   {Failed, "end it, or start the controllers of this election once with --take-over"},
		"other-election":     {Failed, "start the controllers of this election once with --take-over"},
		"no-controller":      {Failed, "check that hosts.yaml has this host on all controllers, and look at `journalctl -u genv-controller`"},

		"etcd-refuses":        {Failed, "correct --leader and the flags with it, or what etcd's user may read"},
		"etcd-members-silent": {Warning, ""},
		"no-leader":           {Failed, "start one: `systemctl start genv-controller`, and look at `journalctl -u genv-controller`"},
		"leader-clock":        {Warning, ""},
		"leader-reaches-few":  {Warning, ""},
		"no-standby":          {Warning, "start another controller with the same --leader on another jump host"},
		"standby-differs":     {Warning, ""},
		"controller-lost":     {Warning, ""},

		"disk-full":      {Failed, "free space or inodes there: the record of what is done can't be written"},
		"disk-low":       {Warning, "free space there soon: the record of what is done needs it"},
		"disk-read-only": {Failed, "mount it read-write, or set GENV_AUDIT_LOG, GENV_TMPDIR or GENV_ROOT_DIR to another folder"},
		"record-unsafe":  {Failed, "have root own the folder of the record, with mode 0755 at most: users could replace the record"},
	}
})

// meaningOf is what follows from a cause. One that is not known here failed, and has no next step.
func meaningOf(c Cause) meaning {
	if m, known := meanings()[c]; known {
		return m
	}
	return meaning{status: Failed}
}
