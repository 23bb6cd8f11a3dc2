//! Options by number and by name (RFC 2132; dhcp-options(5)).

use dhcproto::v4::OptionCode;

/// What is asked for unless `skipDefault` is said. The classless routes come first, as RFC 3442 wants it.
pub(crate) const REQUESTED: &[OptionCode] = &[
    OptionCode::ClasslessStaticRoute,
    OptionCode::Router,
    OptionCode::SubnetMask,
    OptionCode::StaticRoutingTable,
    OptionCode::DomainNameServer,
    OptionCode::DomainName,
    OptionCode::DomainSearch,
    OptionCode::AddressLeaseTime,
    OptionCode::Renewal,
    OptionCode::Rebinding,
];

/// What the client says itself; a configuration cannot say it.
pub(crate) const OWN: &[OptionCode] = &[
    OptionCode::Pad,
    OptionCode::RequestedIpAddress,
    OptionCode::OptionOverload,
    OptionCode::MessageType,
    OptionCode::ServerIdentifier,
    OptionCode::ParameterRequestList,
    OptionCode::MaxMessageSize,
    OptionCode::End,
];

/// By what a server knows a client and its place: the client identifier (RFC 2132, 9.14; RFC 4361), the machine identifier (RFC 4578),
/// what relay agents alone say (RFC 3046), and the network to give an address of (RFC 3011).
pub(crate) const IDENTITIES: &[OptionCode] =
    &[OptionCode::ClientIdentifier, OptionCode::ClientMachineIdentifier, OptionCode::RelayAgentInformation, OptionCode::SubnetSelection];

/// Options that a configuration may call by name, as dhcp-options(5) does.
pub(crate) const NAMES: &[(&str, OptionCode)] = &[
    ("dhcp-client-identifier", OptionCode::ClientIdentifier),
    ("subnet-mask", OptionCode::SubnetMask),
    ("routers", OptionCode::Router),
    ("host-name", OptionCode::Hostname),
    ("user-class", OptionCode::UserClass),
    ("vendor-class-identifier", OptionCode::ClassIdentifier),
    ("domain-name-servers", OptionCode::DomainNameServer),
    ("domain-name", OptionCode::DomainName),
    ("domain-search", OptionCode::DomainSearch),
    ("static-routes", OptionCode::StaticRoutingTable),
    ("rfc3442-classless-static-routes", OptionCode::ClasslessStaticRoute),
    ("dhcp-lease-time", OptionCode::AddressLeaseTime),
    ("interface-mtu", OptionCode::InterfaceMtu),
    ("ntp-servers", OptionCode::NtpServers),
    ("fqdn", OptionCode::ClientFQDN),
];

/// An option from its name or its number.
pub(crate) fn parse(text: &str) -> Option<OptionCode> {
    let number = || text.parse::<u8>().ok().map(OptionCode::from);
    NAMES.iter().find(|(name, _)| *name == text).map(|(_, code)| *code).or_else(number)
}
