//! Numbers of the kernel's interface, by header file. All are ABI and never change.

/// linux/netlink.h
pub(crate) mod netlink {
    pub(crate) const NLM_F_REQUEST: u16 = 0x01;
    pub(crate) const NLM_F_ACK: u16 = 0x04;
    pub(crate) const NLM_F_ECHO: u16 = 0x08;
    pub(crate) const NLM_F_DUMP_INTR: u16 = 0x10;
    pub(crate) const NLM_F_DUMP: u16 = 0x300;
    pub(crate) const NLM_F_REPLACE: u16 = 0x100;
    pub(crate) const NLM_F_EXCL: u16 = 0x200;
    pub(crate) const NLM_F_CREATE: u16 = 0x400;
    /// In an answer: only the header of the refused request follows the errno.
    pub(crate) const NLM_F_CAPPED: u16 = 0x100;
    /// In an answer: attributes follow (`NLMSGERR_ATTR_*`).
    pub(crate) const NLM_F_ACK_TLVS: u16 = 0x200;
    pub(crate) const NLMSG_ERROR: u16 = 2;
    pub(crate) const NLMSG_DONE: u16 = 3;
    pub(crate) const NLMSG_OVERRUN: u16 = 4;
    pub(crate) const NLMSGERR_ATTR_MSG: u16 = 1;
}

/// linux/netconf.h
pub(crate) mod netconf {
    pub(crate) const NETCONFA_IFINDEX: u16 = 1;
    pub(crate) const NETCONFA_FORWARDING: u16 = 2;
    pub(crate) const NETCONFA_IFINDEX_ALL: i32 = -1;
}

/// linux/neighbour.h
pub(crate) mod neighbour {
    pub(crate) const NDA_DST: u16 = 1;
    pub(crate) const NDA_LLADDR: u16 = 2;
    pub(crate) const NDA_PORT: u16 = 6;
    pub(crate) const NDA_VNI: u16 = 7;
    pub(crate) const NDA_IFINDEX: u16 = 8;
    pub(crate) const NDA_MASTER: u16 = 9;
    pub(crate) const NDA_SRC_VNI: u16 = 11;
    pub(crate) const NDA_NH_ID: u16 = 13;

    pub(crate) const NUD_NOARP: u16 = 0x40;
    pub(crate) const NUD_PERMANENT: u16 = 0x80;

    pub(crate) const NDTA_NAME: u16 = 1;
    pub(crate) const NDTA_THRESH3: u16 = 4;
    pub(crate) const NDTA_CONFIG: u16 = 5;
    pub(crate) const NDTA_STATS: u16 = 7;

    pub(crate) const NTF_SELF: u8 = 0x02;
    pub(crate) const NTF_OFFLOADED: u8 = 0x20;
}

/// linux/rtnetlink.h
pub(crate) mod rtnetlink {
    pub(crate) const RTM_NEWLINK: u16 = 16;
    pub(crate) const RTM_DELLINK: u16 = 17;
    pub(crate) const RTM_GETLINK: u16 = 18;
    pub(crate) const RTM_SETLINK: u16 = 19;
    pub(crate) const RTM_NEWLINKPROP: u16 = 108;
    pub(crate) const RTM_DELLINKPROP: u16 = 109;
    pub(crate) const RTM_NEWADDR: u16 = 20;
    pub(crate) const RTM_DELADDR: u16 = 21;
    pub(crate) const RTM_GETADDR: u16 = 22;
    pub(crate) const RTM_NEWROUTE: u16 = 24;
    pub(crate) const RTM_DELROUTE: u16 = 25;
    pub(crate) const RTM_GETROUTE: u16 = 26;
    pub(crate) const RTM_NEWNEIGH: u16 = 28;
    pub(crate) const RTM_DELNEIGH: u16 = 29;
    pub(crate) const RTM_GETNEIGH: u16 = 30;
    pub(crate) const RTM_NEWRULE: u16 = 32;
    pub(crate) const RTM_DELRULE: u16 = 33;
    pub(crate) const RTM_GETRULE: u16 = 34;
    pub(crate) const RTM_NEWQDISC: u16 = 36;
    pub(crate) const RTM_DELQDISC: u16 = 37;
    pub(crate) const RTM_GETQDISC: u16 = 38;
    pub(crate) const RTM_NEWTCLASS: u16 = 40;
    pub(crate) const RTM_NEWNEIGHTBL: u16 = 64;
    pub(crate) const RTM_GETNEIGHTBL: u16 = 66;
    pub(crate) const RTM_GETTCLASS: u16 = 42;
    pub(crate) const RTM_NEWTFILTER: u16 = 44;
    pub(crate) const RTM_GETTFILTER: u16 = 46;
    pub(crate) const RTM_NEWACTION: u16 = 48;
    pub(crate) const RTM_NEWNETCONF: u16 = 80;
    pub(crate) const RTM_GETNETCONF: u16 = 82;
    pub(crate) const RTM_NEWNSID: u16 = 88;
    pub(crate) const RTM_GETNSID: u16 = 90;
    pub(crate) const RTM_NEWNEXTHOP: u16 = 104;
    pub(crate) const RTM_DELNEXTHOP: u16 = 105;
    pub(crate) const RTM_GETNEXTHOP: u16 = 106;

    /// Write what a card has for each of its virtual functions.
    pub(crate) const RTEXT_FILTER_VF: u32 = 1 << 0;
    /// Do not write a link's statistics: most of a dump's bytes.
    pub(crate) const RTEXT_FILTER_SKIP_STATS: u32 = 1 << 3;
    /// Write the VLANs of a bridge's ports, ranges as two entries.
    pub(crate) const RTEXT_FILTER_BRVLAN_COMPRESSED: u32 = 1 << 2;

    pub(crate) const RTA_DST: u16 = 1;
    pub(crate) const RTA_OIF: u16 = 4;
    pub(crate) const RTA_GATEWAY: u16 = 5;
    pub(crate) const RTA_PRIORITY: u16 = 6;
    pub(crate) const RTA_SRC: u16 = 2;
    pub(crate) const RTA_PREFSRC: u16 = 7;
    pub(crate) const RTA_METRICS: u16 = 8;
    pub(crate) const RTA_MULTIPATH: u16 = 9;
    pub(crate) const RTA_TABLE: u16 = 15;
    pub(crate) const RTA_VIA: u16 = 18;
    pub(crate) const RTA_NH_ID: u16 = 30;

    /// linux/nexthop.h
    pub(crate) const NHA_ID: u16 = 1;
    pub(crate) const NHA_GROUP: u16 = 2;
    pub(crate) const NHA_OIF: u16 = 5;
    pub(crate) const NHA_GATEWAY: u16 = 6;

    pub(crate) const RTAX_MTU: u16 = 2;
    pub(crate) const RTAX_ADVMSS: u16 = 8;

    pub(crate) const RTNH_F_ONLINK: u8 = 4;

    pub(crate) const RTNLGRP_LINK: u32 = 1;
    pub(crate) const RTNLGRP_NEIGH: u32 = 3;
    pub(crate) const RTNLGRP_IPV4_IFADDR: u32 = 5;
    pub(crate) const RTNLGRP_IPV4_ROUTE: u32 = 7;
    pub(crate) const RTNLGRP_IPV6_IFADDR: u32 = 9;
    pub(crate) const RTNLGRP_IPV6_ROUTE: u32 = 11;
    pub(crate) const RTNLGRP_NEXTHOP: u32 = 32;

    /// linux/net_namespace.h
    pub(crate) const NETNSA_NSID: u16 = 1;
    pub(crate) const NETNSA_FD: u16 = 3;
}

/// linux/pkt_sched.h, linux/pkt_cls.h and linux/tc_act/tc_mirred.h
pub(crate) mod sched {
    pub(crate) const TC_H_ROOT: u32 = 0xffff_ffff;
    pub(crate) const TC_H_INGRESS: u32 = 0xffff_fff1;

    pub(crate) const TC_LINKLAYER_ETHERNET: u8 = 1;

    pub(crate) const TCA_KIND: u16 = 1;
    pub(crate) const TCA_OPTIONS: u16 = 2;
    pub(crate) const TCA_STATS2: u16 = 7;
    pub(crate) const TCA_STATS_QUEUE: u16 = 3;

    pub(crate) const TCA_TBF_PARMS: u16 = 1;
    pub(crate) const TCA_TBF_RATE64: u16 = 4;
    pub(crate) const TCA_TBF_BURST: u16 = 6;

    pub(crate) const TCA_HTB_PARMS: u16 = 1;
    pub(crate) const TCA_HTB_INIT: u16 = 2;
    pub(crate) const TCA_HTB_RATE64: u16 = 6;
    pub(crate) const TCA_HTB_CEIL64: u16 = 7;
    /// `HTB_VER >> 16`, which `htb_init` compares.
    pub(crate) const HTB_VERSION: u32 = 3;

    pub(crate) const TCA_U32_CLASSID: u16 = 1;
    pub(crate) const TCA_U32_SEL: u16 = 5;
    pub(crate) const TCA_U32_ACT: u16 = 7;
    pub(crate) const TC_U32_TERMINAL: u8 = 1;

    pub(crate) const TCA_ACT_TAB: u16 = 1;
    pub(crate) const TCA_ACT_KIND: u16 = 1;
    pub(crate) const TCA_ACT_OPTIONS: u16 = 2;
    pub(crate) const TCA_MIRRED_PARMS: u16 = 2;
    pub(crate) const TCA_EGRESS_REDIR: u32 = 1;
    pub(crate) const TC_ACT_STOLEN: u32 = 4;

    /// linux/if_ether.h
    pub(crate) const ETH_P_ALL: u16 = 0x0003;
    pub(crate) const ETH_P_IP: u16 = 0x0800;
    pub(crate) const ETH_P_IPV6: u16 = 0x86dd;
}

/// linux/fib_rules.h
pub(crate) mod fib_rules {
    pub(crate) const FRA_DST: u16 = 1;
    pub(crate) const FRA_SRC: u16 = 2;
    pub(crate) const FRA_IIFNAME: u16 = 3;
    pub(crate) const FRA_PRIORITY: u16 = 6;
    pub(crate) const FRA_FWMARK: u16 = 10;
    pub(crate) const FRA_SUPPRESS_IFGROUP: u16 = 13;
    pub(crate) const FRA_SUPPRESS_PREFIXLEN: u16 = 14;
    pub(crate) const FRA_TABLE: u16 = 15;
    pub(crate) const FRA_FWMASK: u16 = 16;
    pub(crate) const FRA_OIFNAME: u16 = 17;
    pub(crate) const FRA_PAD: u16 = 18;
    pub(crate) const FRA_PROTOCOL: u16 = 21;

    pub(crate) const FR_ACT_TO_TBL: u8 = 1;

    pub(crate) const FIB_RULE_INVERT: u32 = 2;
}

/// linux/if_link.h and linux/veth.h
pub(crate) mod link {
    pub(crate) const IFLA_ADDRESS: u16 = 1;
    pub(crate) const IFLA_IFNAME: u16 = 3;
    pub(crate) const IFLA_MTU: u16 = 4;
    pub(crate) const IFLA_LINK: u16 = 5;
    pub(crate) const IFLA_MASTER: u16 = 10;
    pub(crate) const IFLA_PROTINFO: u16 = 12;
    pub(crate) const IFLA_TXQLEN: u16 = 13;
    pub(crate) const IFLA_OPERSTATE: u16 = 16;
    pub(crate) const IFLA_LINKINFO: u16 = 18;
    pub(crate) const IFLA_IFALIAS: u16 = 20;
    pub(crate) const IFLA_VFINFO_LIST: u16 = 22;
    pub(crate) const IFLA_AF_SPEC: u16 = 26;
    pub(crate) const IFLA_GROUP: u16 = 27;
    pub(crate) const IFLA_NUM_TX_QUEUES: u16 = 31;
    pub(crate) const IFLA_NUM_RX_QUEUES: u16 = 32;
    pub(crate) const IFLA_NET_NS_FD: u16 = 28;
    pub(crate) const IFLA_EXT_MASK: u16 = 29;
    pub(crate) const IFLA_PROMISCUITY: u16 = 30;
    pub(crate) const IFLA_LINK_NETNSID: u16 = 37;
    pub(crate) const IFLA_GSO_MAX_SEGS: u16 = 40;
    pub(crate) const IFLA_GSO_MAX_SIZE: u16 = 41;
    pub(crate) const IFLA_NEW_IFINDEX: u16 = 49;
    pub(crate) const IFLA_MIN_MTU: u16 = 50;
    pub(crate) const IFLA_MAX_MTU: u16 = 51;
    pub(crate) const IFLA_PROP_LIST: u16 = 52;
    pub(crate) const IFLA_ALT_IFNAME: u16 = 53;
    pub(crate) const IFLA_PERM_ADDRESS: u16 = 54;
    pub(crate) const IFLA_PARENT_DEV_NAME: u16 = 56;
    pub(crate) const IFLA_PARENT_DEV_BUS_NAME: u16 = 57;
    pub(crate) const IFLA_GRO_MAX_SIZE: u16 = 58;
    pub(crate) const IFLA_GSO_IPV4_MAX_SIZE: u16 = 63;
    pub(crate) const IFLA_GRO_IPV4_MAX_SIZE: u16 = 64;

    pub(crate) const IFLA_INFO_KIND: u16 = 1;
    pub(crate) const IFLA_INFO_DATA: u16 = 2;
    pub(crate) const IFLA_INFO_SLAVE_KIND: u16 = 4;
    pub(crate) const IFLA_INFO_SLAVE_DATA: u16 = 5;

    pub(crate) const IFLA_VF_INFO: u16 = 1;
    pub(crate) const IFLA_VF_MAC: u16 = 1;
    pub(crate) const IFLA_VF_VLAN: u16 = 2;

    pub(crate) const VETH_INFO_PEER: u16 = 1;

    pub(crate) const IFLA_BR_STP_STATE: u16 = 5;
    pub(crate) const IFLA_BR_VLAN_FILTERING: u16 = 7;
    pub(crate) const IFLA_BR_VLAN_PROTOCOL: u16 = 8;
    pub(crate) const IFLA_BR_NF_CALL_IPTABLES: u16 = 36;
    pub(crate) const IFLA_BR_NF_CALL_IP6TABLES: u16 = 37;
    pub(crate) const IFLA_BR_VLAN_DEFAULT_PVID: u16 = 39;
    pub(crate) const IFLA_BR_MULTI_BOOLOPT: u16 = 46;

    /// linux/if_bridge.h
    pub(crate) const IFLA_BRIDGE_VLAN_INFO: u16 = 2;
    pub(crate) const BRIDGE_VLAN_INFO_PVID: u16 = 1 << 1;
    pub(crate) const BRIDGE_VLAN_INFO_UNTAGGED: u16 = 1 << 2;
    pub(crate) const BRIDGE_VLAN_INFO_RANGE_BEGIN: u16 = 1 << 3;
    pub(crate) const BRIDGE_VLAN_INFO_RANGE_END: u16 = 1 << 4;

    pub(crate) const IFLA_BRPORT_STATE: u16 = 1;
    pub(crate) const IFLA_BRPORT_MODE: u16 = 4;
    pub(crate) const IFLA_BRPORT_GUARD: u16 = 5;
    pub(crate) const IFLA_BRPORT_PROTECT: u16 = 6;
    pub(crate) const IFLA_BRPORT_LEARNING: u16 = 8;
    pub(crate) const IFLA_BRPORT_UNICAST_FLOOD: u16 = 9;
    pub(crate) const IFLA_BRPORT_MCAST_FLOOD: u16 = 27;
    pub(crate) const IFLA_BRPORT_BCAST_FLOOD: u16 = 30;
    pub(crate) const IFLA_BRPORT_ISOLATED: u16 = 33;
    pub(crate) const IFLA_BRPORT_LOCKED: u16 = 39;

    pub(crate) const IFLA_MACVLAN_MODE: u16 = 1;
    pub(crate) const IFLA_MACVLAN_BC_QUEUE_LEN: u16 = 7;
    pub(crate) const IFLA_MACVLAN_BC_QUEUE_LEN_USED: u16 = 8;

    pub(crate) const IFLA_VLAN_ID: u16 = 1;

    pub(crate) const IFLA_IPVLAN_MODE: u16 = 1;
    pub(crate) const IFLA_IPVLAN_FLAGS: u16 = 2;

    pub(crate) const IFLA_VXLAN_ID: u16 = 1;
    pub(crate) const IFLA_VXLAN_GROUP: u16 = 2;
    pub(crate) const IFLA_VXLAN_LINK: u16 = 3;
    pub(crate) const IFLA_VXLAN_LOCAL: u16 = 4;
    pub(crate) const IFLA_VXLAN_LEARNING: u16 = 7;
    pub(crate) const IFLA_VXLAN_PORT: u16 = 15;
    pub(crate) const IFLA_VXLAN_GROUP6: u16 = 16;
    pub(crate) const IFLA_VXLAN_LOCAL6: u16 = 17;
    pub(crate) const IFLA_VXLAN_COLLECT_METADATA: u16 = 25;

    pub(crate) const IFLA_GENEVE_COLLECT_METADATA: u16 = 6;

    pub(crate) const IFLA_GRE_COLLECT_METADATA: u16 = 18;

    pub(crate) const IFLA_TUN_OWNER: u16 = 1;
    pub(crate) const IFLA_TUN_GROUP: u16 = 2;
    pub(crate) const IFLA_TUN_MULTI_QUEUE: u16 = 7;
    pub(crate) const IFLA_VRF_TABLE: u16 = 1;

    pub(crate) const IFLA_INET_CONF: u16 = 1;
    pub(crate) const IFLA_INET6_CONF: u16 = 2;
    pub(crate) const IFLA_INET6_ADDR_GEN_MODE: u16 = 8;
}

/// linux/if_addr.h
pub(crate) mod addr {
    pub(crate) const IFA_ADDRESS: u16 = 1;
    pub(crate) const IFA_LOCAL: u16 = 2;
    pub(crate) const IFA_LABEL: u16 = 3;
    pub(crate) const IFA_BROADCAST: u16 = 4;
    pub(crate) const IFA_FLAGS: u16 = 8;
    pub(crate) const IFA_PROTO: u16 = 11;
}

/// Address families (linux/socket.h), as rtnetlink's one byte.
pub(crate) mod family {
    pub(crate) const UNSPEC: u8 = 0;
    pub(crate) const INET: u8 = 2;
    pub(crate) const BRIDGE: u8 = 7;
    pub(crate) const INET6: u8 = 10;
}

/// linux/genetlink.h
pub(crate) mod genetlink {
    /// Length of `struct genlmsghdr`: command, version, two bytes of nothing.
    pub(crate) const GENL_HEADER: usize = 4;

    pub(crate) const GENL_ID_CTRL: u16 = 0x10;
    pub(crate) const CTRL_VERSION: u8 = 1;
    pub(crate) const CTRL_CMD_GETFAMILY: u8 = 3;
    pub(crate) const CTRL_ATTR_FAMILY_ID: u16 = 1;
    pub(crate) const CTRL_ATTR_FAMILY_NAME: u16 = 2;
}

/// linux/wireguard.h
pub(crate) mod wireguard {
    pub(crate) const WG_GENL_NAME: &str = "wireguard";
    pub(crate) const WG_GENL_VERSION: u8 = 1;

    pub(crate) const WG_CMD_GET_DEVICE: u8 = 0;
    pub(crate) const WG_CMD_SET_DEVICE: u8 = 1;

    pub(crate) const WGDEVICE_A_IFINDEX: u16 = 1;
    pub(crate) const WGDEVICE_A_PRIVATE_KEY: u16 = 3;
    pub(crate) const WGDEVICE_A_PUBLIC_KEY: u16 = 4;
    pub(crate) const WGDEVICE_A_LISTEN_PORT: u16 = 6;
    pub(crate) const WGDEVICE_A_FWMARK: u16 = 7;
    pub(crate) const WGDEVICE_A_PEERS: u16 = 8;

    pub(crate) const WGPEER_F_REMOVE_ME: u32 = 1;
    pub(crate) const WGPEER_F_REPLACE_ALLOWEDIPS: u32 = 2;
    pub(crate) const WGPEER_F_UPDATE_ONLY: u32 = 4;

    pub(crate) const WGPEER_A_PUBLIC_KEY: u16 = 1;
    pub(crate) const WGPEER_A_PRESHARED_KEY: u16 = 2;
    pub(crate) const WGPEER_A_FLAGS: u16 = 3;
    pub(crate) const WGPEER_A_ENDPOINT: u16 = 4;
    pub(crate) const WGPEER_A_PERSISTENT_KEEPALIVE_INTERVAL: u16 = 5;
    pub(crate) const WGPEER_A_LAST_HANDSHAKE_TIME: u16 = 6;
    pub(crate) const WGPEER_A_RX_BYTES: u16 = 7;
    pub(crate) const WGPEER_A_TX_BYTES: u16 = 8;
    pub(crate) const WGPEER_A_ALLOWEDIPS: u16 = 9;

    pub(crate) const WGALLOWEDIP_A_FAMILY: u16 = 1;
    pub(crate) const WGALLOWEDIP_A_IPADDR: u16 = 2;
    pub(crate) const WGALLOWEDIP_A_CIDR_MASK: u16 = 3;
}
