package main

import "golang.org/x/sys/unix"

func mountTmpfs(path, options string) error { return unix.Mount("tmpfs", path, "tmpfs", 0, options) }

func unmount(path string) error { return unix.Unmount(path, unix.MNT_DETACH) }
