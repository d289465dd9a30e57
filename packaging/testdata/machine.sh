# PID 1 of a private machine: root's files as they are, in an overlay in memory, with
# their own /proc, /run, /dev, /tmp and cgroups. Nothing of the real machine changes
# and none of its services start. It is started in new namespaces.
#
#   machine.sh FOLDER NAME
#
# It says "ready", waits for a line on stdin, and becomes systemd then.
set -e
mount --make-rprivate /
mount -t tmpfs -o mode=0755 none "$1"
mkdir "$1/upper" "$1/work" "$1/root" "$1/cgroup"
mount -t overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" none "$1/root"
mount -t cgroup2 none "$1/cgroup"
mkdir "$1/cgroup/$2"
echo $$ >"$1/cgroup/$2/cgroup.procs"
umount "$1/cgroup"
cd "$1/root"
exec unshare --cgroup /bin/sh -c '
set -e
mount -t proc proc proc
mount --bind proc/sys proc/sys
mount -o remount,bind,ro proc/sys # is the kernel of the real machine
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
for folder in run dev; do mount -t tmpfs -o mode=0755 tmpfs $folder; done
mkdir dev/pts dev/shm
for folder in tmp dev/shm; do mount -t tmpfs -o mode=1777 tmpfs $folder; done
mount -t devpts -o newinstance,ptmxmode=0666,mode=0620,gid=5 devpts dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
for node in null:3 zero:5 full:7 random:8 urandom:9; do mknod -m 0666 dev/${node%:*} c 1 ${node#*:}; done
mknod -m 0666 dev/tty c 5 0
ln -s null dev/console
ip link set lo up
hostname private-machine
rm -rf etc/systemd/system/* lib/systemd/system/*.wants lib/systemd/system-generators/* var/log/journal
mkdir -p etc/systemd/system/sockets.target.wants
ln -s /lib/systemd/system/systemd-journald.socket etc/systemd/system/sockets.target.wants/
rm -rf etc/genv etc/sudoers.d/zz-genv var/lib/genv* var/log/genv* var/tmp/genv usr/local/bin/genv
rm -f etc/dpkg/dpkg.cfg.d/* usr/sbin/policy-rc.d # images for containers leave out man pages and services
rm -f var/lib/man-db/auto-update # the index of man pages takes its time
: >etc/fstab
pivot_root . mnt
umount -l mnt
cd /
dpkg --purge genv >/dev/null 2>&1 || :
userdel genv 2>/dev/null || :
echo ready
read -r _
export container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin
exec /lib/systemd/systemd --unit=basic.target </dev/null >/dev/null 2>&1
'
