"""Plugs ports as kuryr-cni's daemon does, with its own code: kuryr_kubernetes.cni.binding. One process for all of them, as there.

A line `add NETNS IFNAME VIF` plugs a port into a namespace as an additional interface, and prints how many seconds it took; `add-default` does the
same with the subnets' default routes; `del` unplugs it. os_vif's part, which would set the bridge's datapath type to `system`, is left out."""

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
driver = bridge.VIFOpenVSwitchDriver()
print('ready', flush=True)
for line in sys.stdin:
    verb, netns, ifname, text = line.split(maxsplit=3)
    vif = objects.vif.VIFOpenVSwitch.obj_from_primitive(json.loads(text))
    begun = time.perf_counter()
    if verb == 'del':
        driver.disconnect(vif, ifname, netns, 'container')
    else:
        driver.connect(vif, ifname, netns, 'container')
        base._configure_l3(vif, ifname, netns, verb == 'add-default')
    print(time.perf_counter() - begun, flush=True)
