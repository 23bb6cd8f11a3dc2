//! Options by number and by name (RFC 2132; dhcp-options(5)).

pub(crate) const PAD: u8 = 0;
pub(crate) const SUBNET_MASK: u8 = 1;
pub(crate) const ROUTERS: u8 = 3;
pub(crate) const DNS: u8 = 6;
pub(crate) const DOMAIN: u8 = 15;
pub(crate) const STATIC_ROUTES: u8 = 33;
pub(crate) const REQUESTED_ADDRESS: u8 = 50;
pub(crate) const LEASE_TIME: u8 = 51;
pub(crate) const OVERLOAD: u8 = 52;
pub(crate) const MESSAGE_TYPE: u8 = 53;
pub(crate) const SERVER_ID: u8 = 54;
pub(crate) const REQUEST_LIST: u8 = 55;
pub(crate) const MESSAGE: u8 = 56;
pub(crate) const MAX_SIZE: u8 = 57;
pub(crate) const T1: u8 = 58;
pub(crate) const T2: u8 = 59;
pub(crate) const CLIENT_ID: u8 = 61;
pub(crate) const SEARCH: u8 = 119;
pub(crate) const CLASSLESS_ROUTES: u8 = 121;
pub(crate) const END: u8 = 255;

/// What is asked for unless `skipDefault` is said. The classless routes come first, as RFC 3442 wants it.
pub(crate) const REQUESTED: &[u8] = &[CLASSLESS_ROUTES, ROUTERS, SUBNET_MASK, STATIC_ROUTES, DNS, DOMAIN, SEARCH, LEASE_TIME, T1, T2];

/// What the client says itself; a configuration cannot say it.
pub(crate) const OWN: &[u8] = &[PAD, REQUESTED_ADDRESS, OVERLOAD, MESSAGE_TYPE, SERVER_ID, REQUEST_LIST, MAX_SIZE, END];

/// Options that a configuration may call by name, as dhcp-options(5) does.
pub(crate) const NAMES: &[(&str, u8)] = &[
    ("dhcp-client-identifier", CLIENT_ID),
    ("subnet-mask", SUBNET_MASK),
    ("routers", ROUTERS),
    ("host-name", 12),
    ("user-class", 77),
    ("vendor-class-identifier", 60),
    ("domain-name-servers", DNS),
    ("domain-name", DOMAIN),
    ("domain-search", SEARCH),
    ("static-routes", STATIC_ROUTES),
    ("rfc3442-classless-static-routes", CLASSLESS_ROUTES),
    ("dhcp-lease-time", LEASE_TIME),
    ("interface-mtu", 26),
    ("ntp-servers", 42),
    ("fqdn", 81),
];

/// An option's number from its name or its number.
pub(crate) fn parse(text: &str) -> Option<u8> {
    NAMES.iter().find(|(name, _)| *name == text).map(|(_, code)| *code).or_else(|| text.parse().ok())
}
