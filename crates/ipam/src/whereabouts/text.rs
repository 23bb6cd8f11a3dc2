//! Addresses as whereabouts reads them: with zeroes in front of a number, which it takes for decimal (`010.0.0.1` is `10.0.0.1`).

use std::net::IpAddr;

/// An address. One of IPv4 in IPv6's clothes is none: nobody means it.
#[must_use]
pub fn sloppy_address(text: &str) -> Option<IpAddr> {
    let groups = text.split(':').map(|group| group.split('.').map(without_zeroes).collect::<Vec<_>>().join("."));
    let address: IpAddr = groups.collect::<Vec<_>>().join(":").parse().ok()?;
    (address.to_canonical() == address).then_some(address)
}

/// An address with a prefix length. The address may have bits set behind its prefix.
#[must_use]
pub fn sloppy_network(text: &str) -> Option<(IpAddr, u8)> {
    let (address, prefix) = text.split_once('/')?;
    let address = sloppy_address(address)?;
    let prefix = without_zeroes(prefix).parse().ok().filter(|_| prefix.bytes().all(|b| b.is_ascii_digit()))?;
    let bits = if address.is_ipv4() { 32 } else { 128 };
    (prefix <= bits).then_some((address, prefix))
}

fn without_zeroes(number: &str) -> &str {
    match number.trim_start_matches('0') {
        "" if !number.is_empty() => "0",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeroes_in_front() {
        for (text, reads) in [
            ("10.0.0.1", "10.0.0.1"),
            ("010.000.0.044", "10.0.0.44"),
            ("0000:00db:0::00001", "0:db::1"),
            ("::", "::"),
            ("2001:db8:5422:0005::", "2001:db8:5422:5::"),
            ("::0a", "::a"),
        ] {
            assert_eq!(sloppy_address(text).map(|a| a.to_string()), Some(reads.parse::<IpAddr>().unwrap().to_string()), "{text}");
        }
        for text in
            ["", "0", "10.0.0", "10.0.0.256", "10.0.0.1.", "::ffff:10.0.0.1", "fe80::1%eth0", "10.0.0.+1", "1:2:3", ":::", "00256.0.0.1"]
        {
            assert_eq!(sloppy_address(text), None, "{text}");
        }
    }

    #[test]
    fn networks() {
        let read = |text: &str| sloppy_network(text).map(|(address, prefix)| format!("{address}/{prefix}"));
        assert_eq!(read("192.168.2.225/28").as_deref(), Some("192.168.2.225/28"));
        assert_eq!(read("fd00::0/0112").as_deref(), Some("fd00::/112"));
        assert_eq!(read("0.0.0.0/0").as_deref(), Some("0.0.0.0/0"));
        for text in ["10.0.0.0", "10.0.0.0/", "10.0.0.0/33", "::/129", "10.0.0.0/-1", "10.0.0.0/8/8", "/8", "10.0.0.0/256", "10.0.0.0/+8"] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
