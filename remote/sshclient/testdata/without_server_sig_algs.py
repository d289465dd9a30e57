"""An SSH server that does not say which signatures it knows (no server-sig-algs).

Arguments: the address, the file of its ed25519 host key, the one RSA public key that
it accepts (base64), and the signatures that it does not know. It prints its port, and
serves connections, whose commands all succeed, until its stdin ends.
"""

import os
import socket
import sys
import threading

import paramiko


class Server(paramiko.ServerInterface):
    def get_allowed_auths(self, username):
        return "publickey"

    def check_auth_publickey(self, username, key):
        return paramiko.AUTH_SUCCESSFUL if key.get_base64() == accepted else paramiko.AUTH_FAILED

    def check_channel_request(self, kind, channel):
        return paramiko.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel, command):
        def succeed():
            channel.send_exit_status(0)
            channel.close()

        threading.Timer(0.1, succeed).start()
        return True


def serve(connection):
    transport = paramiko.Transport(connection, server_sig_algs=False, disabled_algorithms={"pubkeys": unknown})
    transport.add_server_key(paramiko.Ed25519Key.from_private_key_file(hostkey))
    transport.start_server(event=threading.Event(), server=Server())


address, hostkey, accepted, *unknown = sys.argv[1:]
listener = socket.create_server((address, 0))
print(listener.getsockname()[1], flush=True)


def accept():
    while True:
        serve(listener.accept()[0])


threading.Thread(target=accept, daemon=True).start()
sys.stdin.read()
os._exit(0)
