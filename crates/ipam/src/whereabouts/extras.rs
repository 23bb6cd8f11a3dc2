//! The addresses that a configuration and its caller name themselves: they come on top of those of the ranges, and no pool
//! knows them.

use cni::{CniArgs, CniError, Code, IpConfig};
use ipnet::IpNet;

use super::{WhereaboutsError, WhereaboutsKeys, no_address, sloppy_address, sloppy_network, wrong};
use crate::shown;

const IN_ARGS: &str = "CNI_ARGS ";

impl WhereaboutsKeys {
    /// `addresses`, then the `IP` of `CNI_ARGS`, a list with commas. `GATEWAY`, another list, is the gateway of those of them
    /// whose network has it.
    ///
    /// # Errors
    /// What is no address, where it stands.
    pub fn extras(&self, args: &CniArgs) -> Result<Vec<IpConfig>, CniError> {
        let extras = self.own().and_then(|own| with_args(own, args));
        extras.map_err(|e| {
            let code = if e.place.starts_with(IN_ARGS) { Code::INVALID_ENVIRONMENT } else { Code::INVALID_CONFIG };
            CniError::new(code, e.to_string())
        })
    }

    fn own(&self) -> Result<Vec<IpConfig>, WhereaboutsError> {
        let one = |(i, raw): (usize, &crate::RawAddress)| {
            let place = format!("ipam.addresses[{i}].");
            let gateway = match raw.gateway.as_str() {
                "" => None,
                text => Some(sloppy_address(text).ok_or_else(|| no_address(&place, "gateway", text))?),
            };
            Ok(IpConfig { gateway, ..address(&place, "address", &raw.address)? })
        };
        self.addresses.iter().enumerate().map(one).collect()
    }
}

fn with_args(mut addresses: Vec<IpConfig>, args: &CniArgs) -> Result<Vec<IpConfig>, WhereaboutsError> {
    let listed = |key: &str| args.get(key).filter(|v| !v.is_empty()).into_iter().flat_map(|v| v.split(',')).map(str::trim);
    for text in listed("IP") {
        addresses.push(address(IN_ARGS, "IP", text)?);
    }
    for text in listed("GATEWAY") {
        let gateway = sloppy_address(text).ok_or_else(|| no_address(IN_ARGS, "GATEWAY", text))?;
        addresses.iter_mut().filter(|a| a.address.contains(&gateway)).for_each(|a| a.gateway = Some(gateway));
    }
    Ok(addresses)
}

fn address(place: &str, key: &str, text: &str) -> Result<IpConfig, WhereaboutsError> {
    let no_address =
        || wrong(place, key, format!("{:?} is not an address with its network: expected one such as 10.1.0.7/16", shown(text)));
    let (address, prefix) = sloppy_network(text).ok_or_else(no_address)?;
    let address = IpNet::new(address, prefix).map_err(|_| no_address())?;
    Ok(IpConfig { interface: None, address, gateway: None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RawAddress;

    #[test]
    fn of_the_configuration_and_of_the_caller() {
        let raw = |address: &str, gateway: &str| RawAddress { address: address.to_owned(), gateway: gateway.to_owned() };
        let keys =
            WhereaboutsKeys { addresses: vec![raw("010.1.0.5/16", "10.1.0.2"), raw("fd00::5/64", "")], ..WhereaboutsKeys::default() };
        let told = |keys: &WhereaboutsKeys, args: &str| -> Result<Vec<String>, String> {
            let extras = keys.extras(&CniArgs::parse(args).unwrap()).map_err(|e| format!("{} {}", e.code, e))?;
            Ok(extras.iter().map(|ip| format!("{} {:?}", ip.address, ip.gateway)).collect())
        };
        assert_eq!(told(&keys, "").unwrap(), ["10.1.0.5/16 Some(10.1.0.2)", "fd00::5/64 None"]);
        assert_eq!(
            told(&keys, "IP=10.2.0.7/24, 10.3.0.7/24;GATEWAY=10.2.0.1,fd00::1").unwrap(),
            ["10.1.0.5/16 Some(10.1.0.2)", "fd00::5/64 Some(fd00::1)", "10.2.0.7/24 Some(10.2.0.1)", "10.3.0.7/24 None"]
        );
        for (args, says) in [("IP=10.2.0.7", "4 "), ("GATEWAY=x", "4 ")] {
            let refused = told(&keys, args).unwrap_err();
            assert!(refused.starts_with(says) && refused.contains("CNI_ARGS"), "{refused}");
        }
        let wrong = WhereaboutsKeys { addresses: vec![raw("10.1.0.5", "")], ..WhereaboutsKeys::default() };
        assert!(told(&wrong, "").unwrap_err().contains("ipam.addresses[0].address: \"10.1.0.5\""));
    }
}
