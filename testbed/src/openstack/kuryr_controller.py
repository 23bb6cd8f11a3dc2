"""Gives pods their ports as kuryr-controller does, with its own handlers, drivers and clients: kuryr_kubernetes.controller. What its watches would
call, lines call, one after the other.

The argument is a kuryr.conf. `up NAMESPACE NAME` handles a new pod until its KuryrPort has VIFs; `active NAMESPACE NAME` goes on until all of them
are active; `down NAMESPACE NAME` deletes the pod and releases what it had; `read KURYRPORT` reads the VIFs of a KuryrPort and prints them as Kuryr
writes them. Each of them prints a line `done JSON`."""

import json
import sys
import time

import eventlet
import os_vif
from kuryr_kubernetes import clients
from kuryr_kubernetes import config
from kuryr_kubernetes import exceptions
from kuryr_kubernetes.controller.drivers import utils
from kuryr_kubernetes.controller.handlers import kuryrport
from kuryr_kubernetes.controller.handlers import vif

config.init(['--config-file', sys.argv[1]])
os_vif.initialize()
clients.setup_clients()
kubernetes = clients.get_kubernetes_client()
pods, ports = vif.VIFHandler(), kuryrport.KuryrPortHandler()
ports._drv_vif_pool.sync_pools()


def pod_of(namespace, name):
    return kubernetes.get(f'/api/v1/namespaces/{namespace}/pods/{name}')


def port_of(namespace, name):
    return kubernetes.get(f'/apis/openstack.org/v1/namespaces/{namespace}/kuryrports/{name}')


def until_ready(handle):
    while True:
        try:
            return handle()
        except (exceptions.ResourceNotReady, exceptions.PortNotReady):
            time.sleep(1)


def up(namespace, name):
    pods.on_present(pod_of(namespace, name))
    until_ready(lambda: ports.on_present(port_of(namespace, name)))
    # Pools are filled beside.
    eventlet.sleep(0)


def active(namespace, name):
    until_ready(lambda: ports.on_present(port_of(namespace, name)))


def down(namespace, name):
    kubernetes.delete(f'/api/v1/namespaces/{namespace}/pods/{name}')
    pods.on_finalize(pod_of(namespace, name))
    ports.on_finalize(port_of(namespace, name))


def read(text):
    vifs = utils.get_vifs(json.loads(text))
    for one in vifs.values():
        one.obj_reset_changes(recursive=True)
    return {interface: one.obj_to_primitive() for interface, one in vifs.items()}


print('done null', flush=True)
for line in sys.stdin:
    verb, rest = line.strip().split(' ', 1)
    done = read(rest) if verb == 'read' else {'up': up, 'active': active, 'down': down}[verb](*rest.split())
    print('done', json.dumps(done), flush=True)
