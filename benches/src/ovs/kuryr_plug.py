"""Plugs a port as kuryr-cni's daemon does, with its own code: kuryr_kubernetes.cni.binding. One process for all of them, as there.

A line `add NETNS` plugs the port into a namespace, and prints how many seconds it took; `del NETNS` unplugs it. os_vif's part, which would set
the bridge's datapath type to `system`, is left out."""

import json
import sys
import time

import os_vif
from kuryr_kubernetes import config
from kuryr_kubernetes.cni.binding import base
from kuryr_kubernetes.cni.binding import bridge
from os_vif import objects

config.CONF([])
os_vif.initialize()
vif = objects.vif.VIFOpenVSwitch.obj_from_primitive(json.loads(sys.argv[1]))
driver = bridge.VIFOpenVSwitchDriver()
print('ready', flush=True)
for line in sys.stdin:
    verb, netns = line.split()
    begun = time.perf_counter()
    if verb == 'add':
        driver.connect(vif, 'eth0', netns, 'container')
        base._configure_l3(vif, 'eth0', netns, True)
    else:
        driver.disconnect(vif, 'eth0', netns, 'container')
    print(time.perf_counter() - begun, flush=True)
