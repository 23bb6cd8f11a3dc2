//! `dhcp` and its daemon against real servers, as `ip`, packets and the servers' own logs tell.

mod crash;
mod daemon;
mod kea;
mod leases;
mod life;
mod server;
mod socket;
mod v6;
mod whose_lease;
