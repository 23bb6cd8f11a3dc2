//! What a device computes for the kernel.

use linux::{Errno, link, offload};

use crate::space::{Space, done, veth};

#[test]
fn a_veth_computes_its_checksums_or_leaves_them() {
    let space = Space::new();
    space.run(|inside, netlink| {
        done(netlink, link::create(&veth("a", "b")));
        let [a, b, none] = ["a", "b", "none"].map(|name| name.parse().unwrap());
        assert_eq!(offload::tx_checksum(inside, &a), Ok(true));
        offload::set_tx_checksum(inside, &a, false).unwrap();
        assert_eq!((offload::tx_checksum(inside, &a), offload::tx_checksum(inside, &b)), (Ok(false), Ok(true)));
        offload::set_tx_checksum(inside, &a, true).unwrap();
        assert_eq!(offload::tx_checksum(inside, &a), Ok(true));
        let error = offload::set_tx_checksum(inside, &none, false).unwrap_err();
        assert_eq!(error.errno, Errno::ENODEV);
        assert!(error.to_string().starts_with("cannot turn off the checksum offload of none: "), "{error}");
    });
}
