"""A client of genv's state files that does what the Python SDK of genv 1.4.3 was seen to do.

It takes genv.lock with flock(2), reads both files, drops environments whose processes have
ended, and writes in place what has changed, all before it gives the lock back.

  client.py work EID INDEX ROUNDS   changes its environment and attaches a device, again and again
  client.py hold EID                renames an environment under the lock, when a line comes in
  client.py lock INDEX              has the lock of a device until a line comes in
  client.py check                   fails unless both files have exactly the keys of 1.4.3
"""

import contextlib
import fcntl
import json
import os
import pwd
import sys
import time

import psutil

FOLDER = os.environ["GENV_TMPDIR"]
KEYS = {
    "env": {"eid", "uid", "creation", "username", "config", "pids", "kernel_ids"},
    "config": {"name", "gpu_memory", "gpus"},
    "device": {"index", "total_memory", "attachments"},
    "attachment": {"eid", "gpu_memory", "time"},
}


def create(name, flags):
    """Opens a file that every user may write, whatever the umask."""
    mask = os.umask(0)
    try:
        path = os.path.join(FOLDER, name)
        os.makedirs(os.path.dirname(path), 0o777, exist_ok=True)
        return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | flags, 0o666), "r+")
    finally:
        os.umask(mask)


@contextlib.contextmanager
def locked(name):
    with create(name, 0) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def read(name, key):
    with open(os.path.join(FOLDER, name)) as file:
        return json.load(file)[key]


def write(name, key, items):
    with create(name, os.O_TRUNC) as file:
        json.dump({key: items}, file, indent=2)


@contextlib.contextmanager
def state():
    """The environments and devices, which are written back unless they are unchanged."""
    with locked("genv.lock"):
        before = read("envs.json", "envs"), read("devices.json", "devices")
        envs, devices = json.loads(json.dumps(before))
        for env in envs:
            env["pids"] = [pid for pid in env["pids"] if psutil.pid_exists(pid)]
        envs = [env for env in envs if env["pids"] or env["kernel_ids"]]
        known = {env["eid"] for env in envs}
        for device in devices:
            device["attachments"] = [a for a in device["attachments"] if a["eid"] in known]
        yield envs, devices
        if envs != before[0]:
            write("envs.json", "envs", envs)
        if devices != before[1]:
            write("devices.json", "devices", devices)


def now():
    return time.strftime("%d/%m/%Y %H:%M:%S")


def one(items, key, value):
    found = [item for item in items if item[key] == value]
    assert len(found) == 1, f"{key} {value} is there {len(found)} times"
    return found[0]


def say(text):
    print(text, flush=True)


def work(eid, index, rounds):
    with state() as (envs, _):
        envs.append({
            "eid": eid, "uid": os.getuid(), "creation": now(), "username": pwd.getpwuid(os.getuid()).pw_name,
            "config": {"name": None, "gpu_memory": None, "gpus": None}, "pids": [os.getpid()], "kernel_ids": [],
        })
    last, attached = None, False
    for number in range(1, int(rounds) + 1):
        with state() as (envs, devices):
            env, device = one(envs, "eid", eid), one(devices, "index", int(index))
            assert env["config"]["gpus"] == last, f"{eid}: {last} was lost: {env}"
            mine = [a for a in device["attachments"] if a["eid"] == eid]
            assert bool(mine) == attached, f"{eid}: attached {attached} was lost: {device}"
            env["config"]["gpus"] = last = number
            if attached:
                device["attachments"].remove(mine[0])
            else:
                device["attachments"].append({"eid": eid, "gpu_memory": None, "time": now()})
            attached = not attached
    say("done")
    sys.stdin.readline()


def hold(eid):
    with state() as (envs, _):
        say("held")
        sys.stdin.readline()
        one(envs, "eid", eid)["config"]["name"] = "renamed"


def lock(index):
    with locked(f"devices/{index}.lock"):
        say("held")
        sys.stdin.readline()


def check():
    with locked("genv.lock"):
        for env in read("envs.json", "envs"):
            assert set(env) == KEYS["env"] and set(env["config"]) == KEYS["config"], env
        for device in read("devices.json", "devices"):
            assert set(device) == KEYS["device"], device
            for attachment in device["attachments"]:
                assert set(attachment) == KEYS["attachment"], attachment


if __name__ == "__main__":
    {"work": work, "hold": hold, "lock": lock, "check": check}[sys.argv[1]](*sys.argv[2:])
