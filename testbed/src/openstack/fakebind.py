"""A mechanism driver of ML2 that binds a port on any host: what the agents of many hosts would do, without them.

The last label of a host's name says how: HOST.bridge, HOST.hybrid, HOST.fail (no binding), else Open vSwitch; with -down behind it the port
stays DOWN, as until an agent has seen it plugged. HOST.sriov binds ports of vnic_type direct, as sriovnicswitch does; the others do not."""

import sqlalchemy
from neutron_lib import constants
from neutron_lib.api.definitions import portbindings
from neutron_lib.plugins.ml2 import api
from oslo_db import exception
from oslo_db.sqlalchemy import exc_filters


@exc_filters.filters('sqlite', sqlalchemy.exc.OperationalError, r'.*database is locked')
def deadlock(error, match, engine_name, is_disconnect):
    """SQLite refuses a transaction at once that has read, and writes after another one has written. MySQL calls that a deadlock, and then
    Neutron repeats the transaction; of SQLite oslo.db does not know it, and the request would be answered with 500."""
    raise exception.DBDeadlock(error)


class FakeBind(api.MechanismDriver):
    def initialize(self):
        pass

    def bind_port(self, context):
        host = context.host
        kind = host.rsplit('.', 1)[-1] if '.' in host else 'ovs'
        down = kind.endswith('-down')
        kind = kind[:-5] if down else kind
        is_function = context.current[portbindings.VNIC_TYPE] == portbindings.VNIC_DIRECT
        if kind == 'fail' or is_function != (kind == 'sriov'):
            return
        if is_function:
            details = {portbindings.CAP_PORT_FILTER: False, portbindings.VIF_DETAILS_CONNECTIVITY: portbindings.CONNECTIVITY_L2}
            context.set_binding(context.segments_to_bind[0][api.ID], portbindings.VIF_TYPE_HW_VEB, details)
            return
        vif_type = portbindings.VIF_TYPE_BRIDGE if kind == 'bridge' else portbindings.VIF_TYPE_OVS
        details = {portbindings.CAP_PORT_FILTER: True, portbindings.VIF_DETAILS_CONNECTIVITY: portbindings.CONNECTIVITY_L2}
        if vif_type == portbindings.VIF_TYPE_OVS:
            details[portbindings.OVS_HYBRID_PLUG] = kind == 'hybrid'
            details[portbindings.OVS_DATAPATH_TYPE] = 'netdev'
            details[portbindings.VIF_DETAILS_BRIDGE_NAME] = 'br-int'
        status = constants.PORT_STATUS_DOWN if down else constants.PORT_STATUS_ACTIVE
        context.set_binding(context.segments_to_bind[0][api.ID], vif_type, details, status=status)
