//! `firewall`, judged by packets: what a host's firewall lets through.

mod firewalld;
mod iptables;
mod nftables;
mod policies;
mod scene;
